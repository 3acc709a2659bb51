-- Some fields of a hash of the state store, as far as they are short: a server writes its own, and may write anything.
--
-- KEYS     the hash
-- ARGV     1 bytes of one field at most; then the names of the fields
-- Returns  the values in their order, false for one that is not there; false in place of all when one is too long, or
--          when there is no hash
-- Cost     O(n) of the fields that are asked for
-- Versions Redis 6, 7 and Valkey

local found = {}
for at = 2, #ARGV do
  local length = redis.pcall("HSTRLEN", KEYS[1], ARGV[at])
  if type(length) ~= "number" or length > tonumber(ARGV[1]) then return false end
  found[at - 1] = length > 0 and redis.call("HGET", KEYS[1], ARGV[at])
end
return found
