-- Puts a job back that was taken away.
--
-- KEYS     1 to 10 the queue's (parts/jobs); 11 its hash, 12 its lock, 13 its logs
-- ARGV     1 its id, 2 the state it had, 3 its score there, 4 its neighbour there, 5 dump of the hash, 6 of the logs
-- Returns  {"done", state} or {"taken"}: its id is in use again
-- Cost     O(n) of the waiting list, which is searched for the neighbour
-- Versions Bull 3.10 to 4.x. A server of another version may refuse the dump: then nothing is changed.

--- include fence
--- include jobs
--- include target
--- include priority

local KEY, LOCK, LOGS = KEYS[11], KEYS[12], KEYS[13]
local ID, STATE, SCORE, NEIGHBOUR, HASH, LINES = unpack(ARGV)

-- In front of its neighbour; when that has gone its way meanwhile, it is this one's turn.
local function line_up(list, neighbour, priority)
  if neighbour ~= "" and call("LINSERT", list, "BEFORE", neighbour, ID) > 0 then
    if priority > 0 then call("ZADD", PRIORITY, priority, ID) end
  elseif priority > 0 then
    add_by_priority(ID, priority, list)
  else
    call("RPUSH", list, ID)
  end
end

local function put_back()
  if call("EXISTS", KEY) == 1 or call("EXISTS", LOCK) == 1 or where(ID, 1000) ~= "" then return { "taken" } end
  local place = place_of(STATE)
  call("RESTORE", KEY, 0, HASH)
  if LINES ~= "" then
    call("DEL", LOGS)
    redis.pcall("RESTORE", LOGS, 0, LINES) -- a job without its log is better than half a job
  end
  if place and place.type == "zset" then
    call("ZADD", place.key, SCORE, ID)
  elseif STATE == "active" then
    line_up(ACTIVE, NEIGHBOUR, 0)
  elseif place then
    line_up(target_list(), NEIGHBOUR, priority_of(KEY))
    STATE = target_list() == PAUSED and "paused" or "waiting"
  end
  return { "done", STATE }
end

return wrong_type() or put_back()
