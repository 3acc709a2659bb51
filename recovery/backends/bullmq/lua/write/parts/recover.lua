--- include stall-field
--- include take
--- include enqueue
--- include events

-- A job that was taken out of `active` goes back to work; the answer is its state then. `how.counts`: as the library's
-- stalled check does it, to run next whatever its priority; else as `moveToWait`, before the others of its priority.
local function recover(queue, traits, job, id, how)
  trim_events(queue, traits)
  if how.forgets then
    redis.call("HDEL", job, "stc", "stalledCounter", "defa")
  elseif how.counts then
    redis.pcall("HINCRBY", job, stall_field(traits, job), 1) -- one that cannot be raised must not stop us half-way
  end
  if how.reason ~= "" then redis.call("HSET", job, "defa", how.reason) end
  local state = enqueue(queue, traits, id, how.counts and 0 or priority_of(job), "RPUSH", true)
  tell(queue, "waiting", "jobId", id, "prev", "active")
  if how.counts then tell(queue, "stalled", "jobId", id) end
  return state
end
