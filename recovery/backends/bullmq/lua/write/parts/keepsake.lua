--- include queue
-- A job as it was before it was taken away: enough to put it back.
local OWN_KEYS = { "", ":logs", ":dependencies", ":processed", ":failed", ":unsuccessful" }
local LENGTHS = {
  [":logs"] = "LLEN", [":dependencies"] = "SCARD", [":processed"] = "HLEN", [":failed"] = "HLEN",
  [":unsuccessful"] = "ZCARD",
}
local TEXTS = { "data", "opts", "returnvalue", "stacktrace", "failedReason", "progress" }
local ENTRIES_KEPT = 5000 -- lines of a log, or children: more take too long to be packed
local IS_LIST = { wait = true, paused = true, active = true }

-- Its size is asked before it is packed: what is not kept costs nothing.
local function is_bulky(job, most)
  local size = 0
  for _, field in ipairs(TEXTS) do size = size + (tonumber(redis.pcall("HSTRLEN", job, field)) or 0) end
  if size > most then return true end
  for suffix, command in pairs(LENGTHS) do
    local length = redis.pcall(command, job .. suffix)
    if type(length) == "number" and length > ENTRIES_KEPT then return true end
  end
  return false
end

-- Suffix and dump of each key of its own, and the size of all; no dumps, and -1, when that is more than `most` bytes.
local function dumps_of(job, most)
  local dumps, size = {}, 0
  if is_bulky(job, most) then return {}, -1 end
  for _, suffix in ipairs(OWN_KEYS) do
    local dump = redis.call("DUMP", job .. suffix)
    if dump then
      size = size + #dump
      dumps[#dumps + 1] = suffix
      dumps[#dumps + 1] = dump
    end
  end
  if size > most then return {}, -1 end
  return dumps, size
end

-- Whether it stands in that list or set; then its score, or its neighbour nearer to the tail.
local function place_of(queue, place, id)
  if not IS_LIST[place] then
    local score = redis.call("ZSCORE", queue[place], id)
    return score ~= false, score or "", ""
  end
  local at = redis.pcall("LPOS", queue[place], id, "RANK", -1)
  if type(at) == "table" then return true, "", "" end -- the server is too old for LPOS: the gate will tell
  return at ~= false, "", at and redis.call("LINDEX", queue[place], at + 1) or ""
end

-- The gate of every removal: true for whoever takes it out of its place.
local function leave(queue, place, id)
  if IS_LIST[place] then return redis.call("LREM", queue[place], -1, id) == 1 end
  return redis.call("ZREM", queue[place], id) == 1
end

-- What is answered of it: the place, the key of the parent that waited for it, the size, and the dumps.
local function keepsake(id, place, score, before, parent, dumps, size)
  local kept = { id, place, score, before, parent, tostring(size) }
  for _, part in ipairs(dumps) do kept[#kept + 1] = part end
  return kept
end
