-- Puts finished jobs back to work.
--
-- KEYS     1 to 10 the queue's (parts/jobs); then two a job: its hash, its lock
-- ARGV     1 now, 2 "yes" to forget stalls, 3 "yes" to forget attempts
--          then six a job: its id, "failed" or "completed"; as they were shown: processedOn, attemptsMade,
--          stalledCounter; the end it is pushed to ("LPUSH", or "RPUSH" when its options say lifo)
-- Returns  an answer a job, in their order (parts/jobs)
-- Cost     O(log n) a job; with a priority O(n) of the waiting list, from the nearer end
-- Versions Bull 3.10 to 4.x, as reprocessJob does it, but: the job leaves its set before anything is written (the
--          library first wipes fields of a job that may be elsewhere by then); it keeps its priority; and a paused
--          queue stays paused (before 4.10.4 it went to `wait` all the same).

--- include fence
--- include jobs
--- include seen
--- include target
--- include priority

local NOW, FORGET_STALLS, FORGET_ATTEMPTS = ARGV[1], ARGV[2] == "yes", ARGV[3] == "yes"

local function push(id, key, command)
  local priority, target = priority_of(key), target_list()
  if priority > 0 then
    add_by_priority(id, priority, target)
  else
    call(command == "RPUSH" and "RPUSH" or "LPUSH", target, id)
  end
end

local function retry(key, lock, id, state, processed, attempts, stalls, command)
  local answer = refusal(key, lock, processed, attempts, stalls)
  if answer then return answer end
  if call("ZREM", place_of(state).key, id) == 0 then return { "elsewhere", where(id, 1000) } end
  call("HDEL", key, "finishedOn", "processedOn", "failedReason")
  call("HSET", key, "retriedOn", NOW)
  if FORGET_STALLS then call("HDEL", key, "stalledCounter") end
  if FORGET_ATTEMPTS then call("HDEL", key, "attemptsMade") end
  push(id, key, command)
  call("PUBLISH", WAIT .. "ing@unstall", id) -- with no token after the @ nobody would be told
  return { "done" }
end

return each_job(3, 6, retry)
