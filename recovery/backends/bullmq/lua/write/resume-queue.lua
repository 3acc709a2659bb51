--[[
  Workers take jobs from this queue again.

  KEYS     the queue's (`QUEUE_KEYS`)
  ARGV[1]  traits, JSON
  Returns  done or unchanged
  Cost     O(1); where `wait` holds jobs already, O(n) of the shorter list
  Versions 3 to 6; in 6 `paused` holds only what an older version left there
]]
--- include fence
--- include events
--- include delay-marker
--- include whole-list
local traits = cjson.decode(ARGV[1])
local queue = queue_at(1)

-- BullMQ 4: an entry in an empty list wakes them for a prioritized job.
local function wake_by_entry()
  if redis.call("ZCARD", queue.prioritized) > 0 and redis.call("LLEN", queue.wait) == 0 then
    redis.call("LPUSH", queue.wait, "0:0")
  end
end

local function wake_by_marker()
  if redis.call("LLEN", queue.wait) + redis.call("ZCARD", queue.prioritized) > 0 then
    redis.call("ZADD", queue.marker, 0, "0")
  else
    wake_when_due(queue, traits)
  end
end

local foreign = foreign_key(queue)
if foreign then return redis.error_reply("WRONGTYPE " .. foreign .. " holds something else") end
if not is_paused(queue) and redis.call("EXISTS", queue.paused) == 0 then return "unchanged" end

redis.call("HDEL", queue.meta, "paused")
move_list(queue.paused, queue.wait)
if traits.has_marker then
  wake_by_marker()
elseif traits.has_prioritized then
  wake_by_entry()
end
tell(queue, "resumed")
return "done"
