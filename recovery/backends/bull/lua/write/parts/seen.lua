-- How a job is told apart from the one that was shown.

-- Only what a removed job left behind: a counter or an error.
local function is_ghost(key)
  return not (call("HEXISTS", key, "name") == 1 or call("HEXISTS", key, "data") == 1
    or call("HEXISTS", key, "timestamp") == 1)
end

-- Each field that was shown, against what it is now: tells a job that ran again meanwhile. nil: nothing changed.
local function changed(key, processed, attempts, stalls)
  local now = call("HMGET", key, "processedOn", "attemptsMade", "stalledCounter")
  if tonumber(now[1] or "") ~= tonumber(processed) then return { "changed", "processedOn" } end
  if tonumber(now[2] or 0) ~= tonumber(attempts) then return { "changed", "attemptsMade" } end
  if tonumber(now[3] or 0) ~= tonumber(stalls) then return { "changed", "stalledCounter" } end
end

-- nil: a job with nobody's lock on it, as it was shown.
local function refusal(key, lock, processed, attempts, stalls)
  local left = call("PTTL", lock)
  if left ~= -2 then return { "locked", left } end
  local kind = call("TYPE", key).ok
  if kind == "none" then return { "missing" } end
  if kind ~= "hash" then return { "strange", kind } end
  if is_ghost(key) then return { "ghost" } end
  return changed(key, processed, attempts, stalls)
end
