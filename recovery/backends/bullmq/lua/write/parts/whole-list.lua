local AT_ONCE = 5000 -- arguments that one call takes without a deep stack

local function backwards(ids)
  local turned = {}
  for at = #ids, 1, -1 do turned[#turned + 1] = ids[at] end
  return turned
end

-- A list takes another one's name. Jobs that are there already stay, and run after those that come; the library
-- renames over them, and they are lost. The shorter list is the one that is copied.
local function move_list(from, to)
  local coming, there = redis.call("LLEN", from), redis.call("LLEN", to)
  if coming == 0 then return end
  if coming <= there then
    for first = 0, coming - 1, AT_ONCE do
      redis.call("RPUSH", to, unpack(redis.call("LRANGE", from, first, first + AT_ONCE - 1)))
    end
    redis.call("DEL", from)
    return
  end
  for last = there - 1, 0, -AT_ONCE do
    local ids = redis.call("LRANGE", to, math.max(0, last - AT_ONCE + 1), last)
    redis.call("LPUSH", from, unpack(backwards(ids)))
  end
  redis.call("RENAME", from, to)
end
