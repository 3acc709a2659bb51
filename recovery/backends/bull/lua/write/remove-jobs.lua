-- Takes jobs away with everything that is theirs, and answers what it takes to put them back.
--
-- KEYS     1 to 10 the queue's (parts/jobs); then two a job: its hash, its lock
-- ARGV     1 the queue's base, 2 "yes" when it is proven that active ones are nobody's, 3 bytes of one job that are kept
--          at most; then five a job: its id, its state ("unknown": in no list or set), and as they were shown:
--          processedOn, attemptsMade, stalledCounter
-- Returns  an answer a job (parts/jobs); done: {"done", state, score, neighbour, dump of the hash, dump of the logs}
-- Cost     O(log n) in a sorted set; O(n) in a list, from its tail, where the oldest stand
-- Versions Bull 3.10 to 4.x, as removeJob does it, but: it leaves `stalled` too; and the key against doubles goes only
--          when it names this job. Only the place it was shown in is searched: everywhere would be four lists a job.

--- include fence
--- include jobs
--- include seen
--- include dedup
--- include kept

local BASE, PROVEN, LIMIT = ARGV[1], ARGV[2] == "yes", tonumber(ARGV[3])
local PARTNER = { waiting = "paused", paused = "waiting" } -- pausing renames the list

-- Whether it was there; its score, its neighbour.
local function take(place, id)
  if place.type == "zset" then
    local score = call("ZSCORE", place.key, id)
    return call("ZREM", place.key, id) == 1, score or "", ""
  end
  local next = neighbour(place.key, id)
  return call("LREM", place.key, -1, id) > 0, "", next
end

-- Nothing of it is written before it has left its place; the last one says where that was, or where it is now.
local function taken(id, state)
  if state == "unknown" then
    local found = where(id, 0)
    return found == "", "", "", found
  end
  local is_out, score, next = take(place_of(state), id)
  if not is_out and PARTNER[state] then
    state = PARTNER[state]
    is_out, score, next = take(place_of(state), id)
  end
  return is_out, score, next, is_out and state or where(id, 1000)
end

local function forget(id, key)
  local dedup, limited = own_dedup_key(BASE, id, key), call("HGET", LIMITED, id)
  call("ZREM", PRIORITY, id)
  call("SREM", STALLED, id)
  if limited then
    if string.sub(limited, 1, #BASE + 9) == BASE .. ":limiter:" then redis.pcall("SREM", limited, id) end
    call("HDEL", LIMITED, id)
  end
  if dedup then call("DEL", dedup) end
  call("DEL", key, key .. ":logs")
end

local function remove(key, lock, id, state, ...)
  local answer = refusal(key, lock, ...)
  local is_bare = answer and (answer[1] == "missing" or answer[1] == "ghost") -- an id with no job behind it
  if answer and not (is_bare and state ~= "unknown") then return answer end
  if state == "active" and not is_bare and not PROVEN then return { "unproven" } end
  local dumps = not is_bare and dump(key, LIMIT) or { "", "" }
  local is_out, score, next, place = taken(id, state)
  if not is_out then return answer or { "elsewhere", place } end
  forget(id, key)
  return { "done", state == "unknown" and state or place, score, next, unpack(dumps) }
end

return each_job(3, 5, remove)
