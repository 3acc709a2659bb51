-- Fails jobs whose holder is gone, as the library's own check fails one that stalled too often.
--
-- KEYS     1 to 10 the queue's (parts/jobs); then two a job: its hash, its lock
-- ARGV     1 the queue's base, 2 now, 3 the reason, 4 "count" it as a stall, "keep" or "forget"
--          then seven a job: its id; as they were shown: processedOn, attemptsMade, stalledCounter; what is published;
--          how many failed jobs its options keep ("": all, 0: not even this one); for how many ms ("": for ever)
-- Returns  an answer a job, in their order (parts/jobs); done: {"done", how many heard it (in a cluster: on this node)}
-- Cost     as requeue-jobs, and at most 1000 older jobs are removed, as the options of these say
-- Versions Bull 3.10 to 4.x, as 4.12.6 and later do it: older ones write no finishedOn and do not heed removeOnFail,
--          which leaves jobs in `failed` for ever. A job without `deid` (before 4.16) has no key to give up.

--- include fence
--- include jobs
--- include seen
--- include dedup

local BASE, NOW, REASON, COUNTING = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local spare = 1000 -- older jobs that one call removes; the rest goes with the next job that fails

local function forget(ids)
  spare = spare - #ids
  for _, id in ipairs(ids) do
    local key = BASE .. ":" .. id
    call("ZREM", FAILED, id)
    call("DEL", key, key .. ":logs")
  end
end

local function settle(id, key, keep, age)
  if keep == "0" then return call("DEL", key, key .. ":logs") end
  call("ZADD", FAILED, NOW, id)
  call("HSET", key, "failedReason", REASON)
  call("HSET", key, "finishedOn", NOW)
  if age ~= "" then forget(call("ZRANGEBYSCORE", FAILED, "-inf", tonumber(NOW) - tonumber(age), "LIMIT", 0, spare)) end
  if keep ~= "" then
    local surplus = math.min(call("ZCARD", FAILED) - tonumber(keep), spare)
    if surplus > 0 then forget(call("ZRANGE", FAILED, 0, surplus - 1)) end
  end
end

local function fail(key, lock, id, processed, attempts, stalls, message, keep, age)
  local answer = refusal(key, lock, processed, attempts, stalls)
  if answer then return answer end
  if call("LREM", ACTIVE, -1, id) == 0 then return { "elsewhere", where(id, 1000) } end
  call("SREM", STALLED, id)
  call("ZREM", PRIORITY, id) -- left there by a worker that died before it locked the job; it skews later additions
  if COUNTING == "count" then redis.pcall("HINCRBY", key, "stalledCounter", 1) end
  if COUNTING == "forget" then call("HDEL", key, "stalledCounter") end
  local dedup = own_dedup_key(BASE, id, key)
  if dedup and call("PTTL", dedup) <= 0 then call("DEL", dedup) end
  settle(id, key, keep, age)
  return { "done", call("PUBLISH", FAILED, message) } -- whoever waits for the job learns it from nothing else
end

return each_job(4, 7, fail)
