-- Gives jobs whose holder is gone back to the queue, at the place where the library's own recovery puts them.
--
-- KEYS     1 to 10 the queue's (parts/jobs); then two a job: its hash, its lock
-- ARGV     1 "count" it as a stall, "keep" the counter, or "forget" all stalls
--          then four a job: its id, and as they were shown: processedOn ("" when never), attemptsMade, stalledCounter
-- Returns  an answer a job, in their order (parts/jobs)
-- Cost     each job is searched in `active` from the tail, where the oldest stand: 1 ms at the far end of 100,000
-- Versions Bull 3.10 to 4.x, as all of them do it in moveStalledJobsToWait

--- include fence
--- include jobs
--- include seen
--- include back

local function requeue(key, lock, id, ...)
  local answer = refusal(key, lock, ...)
  if answer then return answer end
  if call("LREM", ACTIVE, -1, id) == 0 then return { "elsewhere", where(id, 1000) } end
  give_back(id, key, ARGV[1])
  return { "done" }
end

return each_job(1, 4, requeue)
