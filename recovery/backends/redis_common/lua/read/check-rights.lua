-- Which commands that put a job back the user of this connection may not call on a queue. Changes nothing; whoever may
-- call no scripts, or not touch the fence, is refused before it begins.
--
-- KEYS     a key of the queue, its fence (write/parts/fence.lua)
-- ARGV     none
-- Returns  the names of those that are refused; false before Redis 7, which does not tell
-- Cost     O(1)
-- Versions all of both libraries

-- In one library or another: a script that is refused half way is not rolled back.
local NEEDED = {
  "DEL", "SET", "INCR", "HSET", "HDEL", "HINCRBY", "LREM", "LPUSH", "RPUSH", "SADD", "SREM", "ZADD", "ZREM", "XADD",
}

if not redis.acl_check_cmd then return false end
local refused = {}
for _, command in ipairs(NEEDED) do
  if not redis.acl_check_cmd(command, KEYS[1]) then table.insert(refused, command) end
end
return refused
