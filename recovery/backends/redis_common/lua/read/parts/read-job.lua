-- The fields of one job as far as they are short, and who holds it.
--
-- names   of its fields: first so many `numbers`, then `texts`, then those that are only measured
-- limits  longest: bytes of a text at most; left: bytes of all texts, which goes down; token: bytes of the lock's token

local DIGITS = 64 -- what is longer than any number is none, and is not read

local function is_error(reply) return type(reply) == "table" and reply.err ~= nil end

-- The numbers, false for what is none; or the error of a command that is refused.
local function read_numbers(hash, names, count)
  local all_fit = true
  local fits = {}
  for at = 1, count do
    local length = redis.pcall("HSTRLEN", hash, names[at])
    if is_error(length) then return length end
    fits[at] = length <= DIGITS
    all_fit = all_fit and fits[at]
  end
  if all_fit then return redis.pcall("HMGET", hash, unpack(names, 1, count)) end
  local values = {}
  for at = 1, count do values[at] = fits[at] and redis.pcall("HGET", hash, names[at]) end
  return values
end

-- Returns the numbers; the lengths of all other fields; the texts, false for what is too long or empty; token and TTL
-- of the lock. A command that is refused leaves its error there.
local function read_job(hash, lock, names, numbers, texts, limits)
  local values = read_numbers(hash, names, numbers)
  local lengths, written = {}, {}
  for at = numbers + 1, #names do
    local length = redis.pcall("HSTRLEN", hash, names[at])
    table.insert(lengths, length)
    if at <= numbers + texts then
      local fits = not is_error(length) and length > 0 and length <= math.min(limits.longest, limits.left)
      if fits then limits.left = limits.left - length end
      table.insert(written, fits and redis.pcall("HGET", hash, names[at]))
    end
  end
  return values, lengths, written, redis.pcall("GETRANGE", lock, 0, limits.token - 1), redis.pcall("PTTL", lock)
end
