-- Pauses or resumes a queue.
--
-- KEYS     1 to 10 the queue's (parts/jobs); 11 meta, 12 the channel that tells it
-- ARGV     1 "paused" or "resumed"
-- Returns  {"done"} or {"unchanged"}
-- Cost     O(1); where jobs are in both lists, O(n) of the shorter one
-- Versions Bull 3.10 to 4.x, as all of them do it, but: the library renames one list onto the other, and the jobs that
--          were in that one are lost. They are there: Bull 3 retries into `wait` while paused, a crash in the middle
--          of empty() leaves a paused list without its flag.

--- include fence
--- include jobs

local META, CHANNEL, PAUSES = KEYS[11], KEYS[12], ARGV[1] == "paused"
local STEP = 1000 -- words of one command

-- All of `from` behind (nearer to the tail than) all of `to`, in their order; whichever is shorter moves.
local function merge(from, to)
  if call("EXISTS", to) == 0 then return call("RENAME", from, to) end
  local ahead, behind = call("LLEN", from), call("LLEN", to)
  if ahead <= behind then
    for at = 0, ahead - 1, STEP do call("RPUSH", to, unpack(call("LRANGE", from, at, at + STEP - 1))) end
    return call("DEL", from)
  end
  for at = behind, 1, -STEP do
    local ids, turned = call("LRANGE", to, math.max(at - STEP, 0), at - 1), {}
    for number = #ids, 1, -1 do turned[#turned + 1] = ids[number] end
    call("LPUSH", from, unpack(turned))
  end
  call("DEL", to)
  call("RENAME", from, to)
end

local function turn()
  local from, to = PAUSES and WAIT or PAUSED, PAUSES and PAUSED or WAIT
  local has_stray, is_paused = call("EXISTS", from) == 1, call("EXISTS", FLAG) == 1
  if is_paused == PAUSES and not has_stray then return { "unchanged" } end
  if has_stray then merge(from, to) end
  if PAUSES then
    call("SET", FLAG, 1)
    call("HSET", META, "paused", 1) -- nothing of Bull reads it; it writes it for BullMQ
  else
    call("DEL", FLAG)
    call("HDEL", META, "paused")
  end
  call("PUBLISH", CHANNEL, ARGV[1])
  return { "done" }
end

local meta = call("TYPE", META).ok
if meta ~= "none" and meta ~= "hash" then return redis.error_reply("WRONGTYPE " .. META .. " is a " .. meta) end
return wrong_type() or turn()
