--- include stall-field
--- include events
--- include dedup
--- include next-of-dedup
--- include parent-on-failure
--- include metrics

-- The stalled check says where it was, the worker does so from 5.44.3 on.
local function announce(queue, traits, key, job, act)
  local prev = (act.is_stall or traits.names_previous) and { "prev", "active" } or {}
  tell(queue, "failed", "jobId", job.id, "failedReason", act.reason, unpack(prev))
  if act.is_stall then return end
  local made = tonumber(redis.call("HGET", key, traits.attempts_field) or 0) or 0
  if made >= tonumber(job.limit) then tell(queue, "retries-exhausted", "jobId", job.id, "attemptsMade", made) end
end

-- A job that was taken out of `active` ends there. `act`: now, reason, is_stall.
local function fail_active(queue, traits, key, job, act)
  trim_events(queue, traits)
  if act.is_stall then
    redis.pcall("HINCRBY", key, stall_field(traits, key), 1) -- one that cannot be raised must not stop us half-way
  elseif traits.counts_starts then
    redis.pcall("HINCRBY", key, "atm", 1)
  end
  if job.traces ~= "" then redis.call("HSET", key, "stacktrace", job.traces) end
  if not traits.has_prioritized then redis.call("ZREM", queue.priority, job.id) end
  redis.call("HSET", key, "failedReason", act.reason, "finishedOn", act.now)
  redis.call("HDEL", key, "defa")
  redis.call("ZADD", queue.failed, act.now, job.id)
  let_go_of_dedup(queue, traits, job.dedup, job.id)
  make_next(queue, traits, job, act.now)

  if act.is_stall then announce(queue, traits, key, job, act) end
  local heard = tell_parents(traits, job.parents, key, act.reason, act.now)
  if not act.is_stall then
    announce(queue, traits, key, job, act)
    count_failure(queue, traits, act.now)
  end

  if not job.is_kept then drop_all(queue, traits, { job.id }, act.others) end
  keep_failed(queue, traits, job.keep, act.now, act.others)
  return (job.is_kept and "failed " or "removed ") .. heard
end

local function tell_if_drained(queue)
  local left = redis.call("LLEN", queue.wait) + redis.call("LLEN", queue.active) + redis.call("ZCARD", queue.prioritized)
  if left == 0 then tell(queue, "drained") end
end
