--[[
  No worker takes another job from this queue.

  KEYS     the queue's (`QUEUE_KEYS`)
  ARGV[1]  traits, JSON
  Returns  done or unchanged
  Cost     O(1); where `paused` holds jobs already, O(n) of the shorter list
  Versions 3 to 5 keep the jobs in `paused` meanwhile, 6 leaves them in `wait`
]]
--- include fence
--- include events
--- include whole-list
local traits = cjson.decode(ARGV[1])
local queue = queue_at(1)

local foreign = foreign_key(queue)
if foreign then return redis.error_reply("WRONGTYPE " .. foreign .. " holds something else") end
if is_paused(queue) then return "unchanged" end

if not traits.pauses_in_place then move_list(queue.wait, queue.paused) end
redis.call("HSET", queue.meta, "paused", 1)
if traits.has_marker then redis.call("DEL", queue.marker) end
tell(queue, "paused")
return "done"
