--- include queue
local STEP = 0x1000 -- a delayed job's score: ms * 4096 + a counter

-- Workers sleep until the next delayed job is due; tell them when that is.
local function wake_when_due(queue, traits)
  local first = redis.call("ZRANGE", queue.delayed, 0, 0, "WITHSCORES")
  if not first[2] then return end
  local due = tonumber(first[2]) / STEP
  if traits.has_marker then
    redis.call("ZADD", queue.marker, due, "1")
    return
  end
  -- BullMQ 3 and 4: an entry `0:<ms>` among the ids, while there is no other work.
  local target = target_list(queue, traits)
  local many = redis.call("LLEN", target)
  if many == 0 then
    redis.call("LPUSH", target, "0:" .. due)
  elseif many == 1 and traits.has_prioritized then
    local old = tonumber(string.match(redis.call("LINDEX", target, 0), "^0:(.*)$") or "")
    if old and old > due then redis.call("LSET", target, 0, "0:" .. due) end
  end
end
