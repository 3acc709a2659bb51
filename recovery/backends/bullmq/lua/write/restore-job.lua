--[[
  A job that was taken away comes back to its place.

  KEYS      the queue's (`QUEUE_KEYS`), the job's; its parent's when it had one that waited for it
  ARGV[1]   traits, JSON
  ARGV[2]   id
  ARGV[3]   the list or set it stood in, "" when in none
  ARGV[4]   its score there
  ARGV[5]   the neighbour it stood in front of, nearer to the tail
  ARGV[6…7] base and id of its parent; "" when that did not wait for it
  ARGV[8…]  suffix and dump of each of its own keys
  Returns   one word: done, taken (its id is in use again), foreign, books, childless (it waited for children that are
            gone), or dump and the reason (another server version made it)
  Cost      O(log n); in a list O(n)
  Versions  3 to 6
]]
--- include fence
--- include books
--- include put-in-place
local FIRST = 8
local traits, id, place = cjson.decode(ARGV[1]), ARGV[2], ARGV[3]
local queue, job, parent = queue_at(1), KEYS[#QUEUE_KEYS + 1], KEYS[#QUEUE_KEYS + 2]

local function is_taken()
  for at = FIRST, #ARGV, 2 do
    if redis.call("EXISTS", job .. ARGV[at]) == 1 then return true end
  end
  return redis.call("EXISTS", job, job .. ":lock") > 0
end

-- All of its keys, or none of them.
local function unpack_dumps()
  for at = FIRST, #ARGV, 2 do
    local answer = redis.pcall("RESTORE", job .. ARGV[at], 0, ARGV[at + 1])
    if answer.err then
      for done = FIRST, at - 2, 2 do redis.call("DEL", job .. ARGV[done]) end
      return answer.err
    end
  end
  return nil
end

-- A parent whose children are gone, or done, would wait for ever.
local function waits_for_nobody()
  for _, child in ipairs(redis.call("SMEMBERS", job .. ":dependencies")) do
    if redis.pcall("HEXISTS", child, "timestamp") ~= 1 or redis.pcall("HEXISTS", child, "finishedOn") == 1 then
      return true
    end
  end
  return redis.call("SCARD", job .. ":dependencies") == 0
end

if foreign_key(queue) then return "foreign" end
if is_taken() then return "taken" end
if parent and not has_sound_books(parent) then return "books" end
local refused = unpack_dumps()
if refused then return "dump " .. refused end
if place == "waiting-children" and waits_for_nobody() then
  for at = FIRST, #ARGV, 2 do redis.call("DEL", job .. ARGV[at]) end
  return "childless"
end

if place ~= "" then put_in_place(queue, traits, job, id, { name = place, score = ARGV[4], neighbour = ARGV[5] }) end
if parent and type(redis.pcall("ZSCORE", ARGV[6] .. ":waiting-children", ARGV[7])) == "string" then
  redis.call("SADD", parent .. ":dependencies", job)
end
return "done"
