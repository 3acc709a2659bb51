-- A console whose scheduler leads says so to a Redis that it watches, and learns which others do, and which one acts: the
-- one that was there first, until it has been silent for too long.
--
-- KEYS     the names of all consoles, the one that acts, this one (backends/redis_common/consoles.py)
-- ARGV     its installation, its "host pid since", for how many ms it counts from now on, then names that are gone
-- Returns  the installation that acts, then the names of all, this one first
-- Cost     O(consoles)
-- Versions any Redis; nothing of the libraries is touched

local WEEK = 7 * 24 * 60 * 60 -- in seconds: nothing of ours stays for ever
local acts, names, left_out = redis.call("GET", KEYS[2]), {ARGV[1]}, {[ARGV[1]] = true}
for at = 4, #ARGV do left_out[ARGV[at]] = true end
if not acts or acts == ARGV[1] then
  acts = ARGV[1]
  redis.call("SET", KEYS[2], acts, "PX", ARGV[3])
end
redis.call("SET", KEYS[3], ARGV[2], "PX", ARGV[3])
for name in string.gmatch(redis.call("GET", KEYS[1]) or "", "%S+") do
  if not left_out[name] then names[#names + 1] = name end
end
redis.call("SET", KEYS[1], table.concat(names, " "), "EX", WEEK)
return {acts, unpack(names)}
