-- What is kept of a key, in step with the indexes that pages and forgetting go by.
local records, results, ends, held, newest, counts, shares = unpack(KEYS)

local function text(number) return string.format("%.0f", number) end
local function count(what, by) redis.call("HINCRBY", counts, what, by or 1) end

-- One more, or one fewer, of the token that made this record. What an older version wrote was not counted.
local function share(packed, by)
  local who = packed and string.match(packed, "^%a+\t%d+\t%d+\t%d+\t%d+\t%d+\t([^\t]*)\t")
  if who and redis.call("HINCRBY", shares, who, by) < 1 then redis.call("HDEL", shares, who) end
end

local function drop(name)
  share(redis.call("HGET", records, name), -1)
  count("bytes", 0 - redis.call("HSTRLEN", results, name)) -- not -n: a negative zero is no integer
  redis.call("HDEL", records, name)
  redis.call("HDEL", results, name)
  for _, index in ipairs({ ends, held, newest }) do redis.call("ZREM", index, name) end
end

-- `fields` of domain/idempotency.py: state, token, since, until, ends, dropped, token's name and owner. Returns them packed.
local function write(name, fields)
  local state, _, since, till, over = unpack(fields)
  local packed = table.concat(fields, "\t")
  redis.call("HSET", records, name, packed)
  redis.call("ZADD", ends, over, name)
  redis.call("ZADD", newest, state == "claimed" and since or till, name)
  if state == "claimed" then redis.call("ZADD", held, till, name) else redis.call("ZREM", held, name) end
  return packed
end
