-- A hash of the state store, as far as it is small: what is too large was written by another program.
--
-- KEYS     the hash
-- ARGV     1 fields at most; 2 bytes of a name or a value at most
-- Returns  names and values by turns; false when there are too many, or one is too long
-- Cost     O(n)
-- Versions Redis 6, 7 and Valkey

local most, longest = tonumber(ARGV[1]), tonumber(ARGV[2])
if redis.call("HLEN", KEYS[1]) > most then return false end
for _, name in ipairs(redis.call("HKEYS", KEYS[1])) do
  if #name > longest or redis.call("HSTRLEN", KEYS[1], name) > longest then return false end
end
return redis.call("HGETALL", KEYS[1])
