--- include queue
--- include as-seen

-- What stands against taking a job out of `active`, in one word, or nil. Reads only: nothing is written before it.
-- `token` is the lock that must be there; "" for none.
local function objection(job, seen, token)
  if not is_job(job) then return "ghost" end
  local held = redis.call("GET", job .. ":lock") or ""
  if held ~= token then return held == "" and "unlocked" or "locked" end
  if not is_as_seen(job, seen) then return "moved" end
  return nil
end

-- The gate: whoever takes it out of `active` may do the rest. Searched from the tail, where the oldest stand.
local function take(queue, id)
  if redis.call("LREM", queue.active, -1, id) == 0 then return false end
  redis.call("SREM", queue.stalled, id)
  return true
end
