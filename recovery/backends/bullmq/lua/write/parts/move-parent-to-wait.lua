--- include enqueue
--- include events
--- include delay-marker

-- A parent that waits for no child any more goes where it may run: after its delay, by its priority, or next.
local function move_parent_to_wait(queue, traits, parent, id, now)
  local delay = tonumber(redis.call("HGET", parent, "delay") or 0) or 0
  if delay > 0 then
    redis.call("ZADD", queue.delayed, (now + delay) * STEP, id)
    wake_when_due(queue, traits)
    if traits.announces_delay then return tell(queue, "delayed", "jobId", id, "delay", now + delay) end
  else
    enqueue(queue, traits, id, priority_of(parent), "RPUSH")
  end
  tell(queue, "waiting", "jobId", id, "prev", "waiting-children")
end

-- Only when it is one that waits for children, and still is a job.
local function release_parent(queue, traits, parent, id, now)
  if redis.call("EXISTS", parent) == 0 then return end
  if redis.call("ZREM", queue["waiting-children"], id) == 1 then move_parent_to_wait(queue, traits, parent, id, now) end
end
