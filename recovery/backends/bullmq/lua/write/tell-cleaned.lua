--[[
  Says how many jobs a clean took away, as the library says it after each of its own rounds.

  KEYS     the queue's events, then the fence (parts/fence.lua)
  ARGV     how many, then the epoch
  Returns  done
  Cost     O(1)
  Versions 3 to 6
]]
--- include fence

redis.call("XADD", KEYS[1], "*", "event", "cleaned", "count", ARGV[1])
return "done"
