--- include move-parent-to-wait
local DROPPED_AT_ONCE = 1000 -- jobs over the limit that one script drops: the library's own bound (5.66.6)
local dropped = 0

-- Whether a parent waits for this job that is not in its queue.
local function waits_elsewhere(queue, job)
  local parent = redis.call("HGET", job, "parentKey")
  if not parent or string.sub(parent, 1, #queue.base + 1) == queue.base .. ":" then return false end
  return redis.pcall("SISMEMBER", parent .. ":dependencies", job) == 1
end

-- Every key of a job, and its place among what its parent waits for. When the parent cannot be reached (another slot
-- of a cluster) it is left as it is.
local function drop(queue, traits, job)
  local parent = redis.call("HGET", job, "parentKey")
  redis.call("DEL", job, job .. ":logs", job .. ":dependencies", job .. ":processed", job .. ":failed", job .. ":unsuccessful")
  if not parent or parent == "" then return end
  local removed = redis.pcall("SREM", parent .. ":dependencies", job)
  if removed ~= 1 or redis.call("SCARD", parent .. ":dependencies") > 0 then return end
  local base, id = string.match(parent, "^(.*):([^:]*)$") -- as the library cuts it
  if not base then return end
  local other = queue_of(base)
  if redis.call("ZREM", other["waiting-children"], id) == 1 then
    enqueue(other, traits, id, 0, "RPUSH")
    tell(other, "waiting", "jobId", id, "prev", "waiting-children")
  end
end

-- Without `others` those stay for which a parent in another queue waits.
local function drop_all(queue, traits, ids, others)
  for _, id in ipairs(ids) do
    local job = queue.base .. ":" .. id
    dropped = dropped + 1
    if others or not waits_elsewhere(queue, job) then
      redis.call("ZREM", queue.failed, id)
      drop(queue, traits, job)
    end
  end
end

-- What a job's own removeOnFail says of the failed ones before it: how old, and how many.
local function keep_failed(queue, traits, keep, now, others)
  if keep.age then
    local oldest = string.format("%.0f", now - keep.age * 1000)
    local room = DROPPED_AT_ONCE - dropped
    drop_all(queue, traits, redis.call("ZREVRANGEBYSCORE", queue.failed, oldest, "-inf", "LIMIT", 0, room), others)
  end
  if keep.count then
    local room = DROPPED_AT_ONCE - dropped
    drop_all(queue, traits, redis.call("ZREVRANGE", queue.failed, keep.count, keep.count + room - 1), others)
  end
end
