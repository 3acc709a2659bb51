--- include enqueue
--- include events
--- include delay-marker

-- From 5.72 on `dn:<deduplication id>` holds the job that is to follow the active one (keepLastIfActive). It may have
-- been replaced since it was read; its options are the sign. Its parent's books are compared, too: they are written to.
local function is_next_as_read(queue, traits, job)
  if job.dedup == "" or not traits.keeps_next then return true end
  local options, books = unpack(redis.call("HMGET", queue.base .. ":dn:" .. job.dedup, "opts", "pdk"))
  return (options or "") == job.next.options and (not options or (books or "") == job.next.books)
end

-- Behind all that are due in the same millisecond.
local function delayed_score(queue, due)
  local last = redis.call("ZREVRANGEBYSCORE", queue.delayed, (due + 1) * STEP - 1, due * STEP, "WITHSCORES", "LIMIT", 0, 1)
  return last[2] and math.min(tonumber(last[2]) + 1, (due + 1) * STEP - 1) or due * STEP
end

local function place(queue, traits, id, follower, now)
  if follower.delay > 0 then
    redis.call("ZADD", queue.delayed, delayed_score(queue, now + follower.delay), id)
    tell_trimmed(queue, traits, "delayed", "jobId", id, "delay", now + follower.delay)
    return wake_when_due(queue, traits)
  end
  enqueue(queue, traits, id, follower.priority, follower.push)
  tell_trimmed(queue, traits, "waiting", "jobId", id)
end

local function make_next(queue, traits, job, now)
  local follower = job.next
  if follower.options == "" then return end
  local plan, owner = queue.base .. ":dn:" .. job.dedup, queue.base .. ":de:" .. job.dedup
  local name, data, parent, parent_text, books, scheduler, chosen =
    unpack(redis.call("HMGET", plan, "name", "data", "pk", "pd", "pdk", "rjk", "jid"))
  local id = string.format("%.0f", redis.call("INCR", queue.base .. ":id")) -- raised even when the id was chosen
  id = chosen or id
  local key = queue.base .. ":" .. id
  redis.call("SET", owner, id, unpack(follower.ttl == "" and {} or { "PX", follower.ttl }))
  redis.call("HSET", key, "name", name or "", "data", data or "{}", "opts", follower.options, "timestamp", now,
    "delay", follower.delay, "priority", follower.priority)
  if parent then redis.call("HSET", key, "parentKey", parent, "parent", parent_text or "{}") end
  if scheduler then redis.call("HSET", key, "rjk", scheduler) end
  if follower.dedup ~= "" then redis.call("HSET", key, "deid", follower.dedup) end
  tell(queue, "added", "jobId", id, "name", name or "")
  place(queue, traits, id, follower, now)
  if books then redis.call("SADD", books, key) end
  redis.call("DEL", plan)
end
