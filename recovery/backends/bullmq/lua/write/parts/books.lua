-- What a parent writes down of its children, beside its own hash.

local BOOKS = {[":dependencies"] = "set", [":processed"] = "hash", [":failed"] = "hash", [":unsuccessful"] = "zset"}

-- All of them of the right type: then nothing here can stop a script half-way.
local function has_sound_books(parent)
  for book, kind in pairs(BOOKS) do
    local found = redis.call("TYPE", parent .. book).ok
    if found ~= "none" and found ~= kind then return false end
  end
  return true
end

-- A child that had ended runs once more: its parent waits for it again, if it is one that still waits.
local function put_child_back(parent, child, ended)
  local was_written
  if ended == "completed" then
    was_written = redis.call("HDEL", parent .. ":processed", child) == 1
  else
    was_written = redis.call("ZREM", parent .. ":unsuccessful", child) + redis.call("HDEL", parent .. ":failed", child) > 0
  end
  if was_written then redis.call("SADD", parent .. ":dependencies", child) end
end
