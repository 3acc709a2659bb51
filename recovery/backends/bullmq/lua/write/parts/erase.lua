--- include queue

-- The iteration that a scheduler has put in line: without it the schedule would end without a word.
local function is_next_of_scheduler(queue, job, id)
  local scheduler = redis.call("HGET", job, "rjk")
  local at = scheduler and redis.call("ZSCORE", queue["repeat"], scheduler)
  if not at or string.sub(id, 1, 7) ~= "repeat:" then return false end
  return string.sub(id, -#at - 1) == ":" .. at
end

-- What stands against taking a job away, in one word, or nil. Reads only.
local function hindrance(queue, job, id)
  local kind = redis.call("TYPE", job).ok
  if redis.call("EXISTS", job .. ":lock") == 1 then return "locked" end
  if kind ~= "hash" then return kind ~= "none" and "foreign" or nil end
  if is_next_of_scheduler(queue, job, id) then return "scheduler" end
  return nil
end

-- Its hash and all that hangs on it; how many keys that were.
local function erase(queue, job, id)
  local duplicate = redis.call("HGET", job, "deid")
  if duplicate then
    local key = queue.base .. ":de:" .. duplicate
    if redis.pcall("GET", key) == id then redis.call("DEL", key, queue.base .. ":dn:" .. duplicate) end
  end
  redis.pcall("ZREM", queue.priority, id)
  return redis.call(
    "DEL", job, job .. ":logs", job .. ":dependencies", job .. ":processed", job .. ":failed", job .. ":unsuccessful"
  )
end
