-- The key that keeps others of its kind out while this job lives (Bull >= 4.16). Only when it names this job: the
-- library deletes it unseen, and lets in a double when a younger job holds it.
local function own_dedup_key(base, id, key)
  local dedup = call("HGET", key, "deid")
  local name = dedup and base .. ":de:" .. dedup
  if name and call("TYPE", name).ok == "string" and call("GET", name) == id then return name end
end
