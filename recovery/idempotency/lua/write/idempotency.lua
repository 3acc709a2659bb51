--[[
  One step in the life of a claim, by the clock of the store itself.

  KEYS     records, results, ends, held, newest, counts, shares (stores/state/state_keys.py)
  ARGV     1 claim, renew, complete, release, forget, show, prune   2 the key of the work   3 token, "" to claim
           4 for how long it is claimed, or kept once it is completed, ms   5 for how long a expired claim is kept, ms
           6 most keys; beyond three quarters of them a token that has a quarter gets no more   7 most bytes of results   8 name of the machine token   9 owner   10 result, "": none
           11 bytes of a result that was too large to be sent here
  Returns  word, now in ms, the record (nil: free), its result (nil: none; for prune how many were dropped)
  Cost     O(log n) of the keys, ten records at most whose time is over; prune: 500 of them
  Versions Redis 6.2, Valkey 7.2 and later: it writes after it asked for the time
]]
--- include records
local step, key, token, span = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local clock = redis.call("TIME")
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

local packed = redis.call("HGET", records, key)
local state, mine, since, till, over, dropped, who
if packed then
  local parts = "^(%a+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(.*)$"
  state, mine, since, till, over, dropped, who = string.match(packed, parts)
  if tonumber(over) <= now then packed = false end
end

local function answer(word, counted)
  if counted then count(counted) end
  return { word, text(now), packed, packed and redis.call("HGET", results, key) }
end
if step == "show" then return answer("shown") end

local due = redis.call("ZRANGEBYSCORE", ends, "-inf", now, "LIMIT", 0, step == "prune" and 500 or 10)
for _, name in ipairs(due) do drop(name) end
if step == "prune" then return { "pruned", text(now), false, tostring(#due) } end
if mine and not packed then drop(key) end

local function claimed(stamp, from, whose)
  local upto = now + span
  packed = write(key, { "claimed", stamp, from, text(upto), text(upto + ARGV[5]), "0", whose })
end

if step == "claim" then
  if packed and state == "completed" then return answer("completed", "refused") end
  if packed and tonumber(till) > now then return answer("claimed", "refused") end
  local total, most = redis.call("HLEN", records), tonumber(ARGV[6])
  local own = tonumber(redis.call("HGET", shares, ARGV[8]) or 0)
  local is_full = total >= most or (4 * total >= 3 * most and 4 * own >= most)
  if not packed and is_full then return answer("full", "full") end
  if packed then count("replaced") end
  share(packed, -1)
  -- Of all keys together, and never below the time: it rises even when all that is kept here was lost.
  local fresh = text(math.max(micros, tonumber(redis.call("HGET", counts, "token") or 0) + 1))
  redis.call("HSET", counts, "token", fresh)
  claimed(fresh, text(now), ARGV[8] .. "\t" .. ARGV[9])
  share(packed, 1)
  return answer("won", "won")
end

if not packed then return answer("free", "late") end
if mine ~= token then return answer("late", "late") end
if step == "complete" then
  if state == "completed" then return answer("again") end
  local size, lost = #ARGV[10], ARGV[11]
  local bytes = tonumber(redis.call("HGET", counts, "bytes") or 0) + size
  if size > 0 and bytes > tonumber(ARGV[7]) then size, lost = 0, text(size) end
  if size > 0 then redis.call("HSET", results, key, ARGV[10]) end
  count("bytes", size)
  packed = write(key, { "completed", mine, since, text(now), text(now + span), lost, who })
  return answer("done", "completed")
end
if (state == "completed") ~= (step == "forget") then return answer(state) end
if step == "renew" then
  claimed(mine, since, who)
  return answer("renewed", "renewed")
end
drop(key)
packed = false
local word = step == "release" and "released" or "forgotten"
return answer(word, word)
