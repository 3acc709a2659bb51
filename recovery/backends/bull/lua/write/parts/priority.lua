-- Bull keeps waiting jobs in order of priority with the help of a sorted set that counts those in front.
local function priority_of(key)
  local priority = tonumber(call("HGET", key, "priority") or 0)
  -- Neither nan nor infinite: ZADD would refuse it after the job was taken from its place.
  return priority and priority > 0 and priority < 2 ^ 53 and priority or 0
end

local function add_by_priority(id, priority, target)
  call("ZADD", PRIORITY, priority, id)
  local count = call("ZCOUNT", PRIORITY, 0, priority)
  local pivot = call("LINDEX", target, call("LLEN", target) - (count - 1))
  if not pivot or call("LINSERT", target, "BEFORE", pivot, id) == -1 then call("RPUSH", target, id) end
end
