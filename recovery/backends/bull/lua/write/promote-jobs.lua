-- Lets delayed jobs run now.
--
-- KEYS     1 to 10 the queue's (parts/jobs); then two a job: its hash, its lock
-- ARGV     four a job: its id, and as they were shown: processedOn, attemptsMade, stalledCounter
-- Returns  an answer a job, in their order (parts/jobs)
-- Cost     O(log n) a job; with a priority O(n) of the waiting list, from the nearer end
-- Versions Bull 3.10 to 4.x, as 4.x does it: before that the list was chosen by whether `paused` has jobs. A job that
--          the rate limiter delayed stays in the limiter's books: the worker that takes it cleans them. Bull before
--          4.8.2 leaves a delayed job its old lock, so a lock says nothing here.

--- include fence
--- include jobs
--- include seen
--- include target
--- include priority

local function promote(key, _, id, processed, attempts, stalls)
  local kind = call("TYPE", key).ok
  if kind ~= "hash" then return kind == "none" and { "missing" } or { "strange", kind } end
  if is_ghost(key) then return { "ghost" } end
  local answer = changed(key, processed, attempts, stalls)
  if answer then return answer end
  if call("ZREM", DELAYED, id) == 0 then return { "elsewhere", where(id, 1000) } end
  local priority, target = priority_of(key), target_list()
  if priority > 0 then
    add_by_priority(id, priority, target)
  else
    call("LPUSH", target, id)
  end
  call("PUBLISH", WAIT .. "ing@unstall", id) -- with no token after the @ nobody would be told
  call("HSET", key, "delay", 0)
  return { "done" }
end

return each_job(0, 4, promote)
