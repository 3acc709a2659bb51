-- Some fields of one job, none that is too long. Changes nothing.
--
-- KEYS     the job
-- ARGV     1 bytes of a field at most; 2 bytes of all of them at most, spent in their order; then their names
-- Returns  each field: its text, its length when it is too long, false when it is empty or not there, or the error of
--          a command that is refused
-- Cost     O(1) a field
-- Versions all of both libraries

local longest, left = tonumber(ARGV[1]), tonumber(ARGV[2])
local fields = {}
for at = 3, #ARGV do
  local length = redis.pcall("HSTRLEN", KEYS[1], ARGV[at])
  local value = length
  if type(length) == "number" then
    if length == 0 then
      value = false
    elseif length <= math.min(longest, left) then
      left = left - length
      value = redis.pcall("HGET", KEYS[1], ARGV[at])
    end
  end
  fields[at - 2] = value
end
return fields
