-- Takes away exactly the lock that was shown, so that recovery need not wait until it runs out.
--
-- KEYS     1 to 10 the queue's (parts/jobs); then two a job: its hash, its lock
-- ARGV     1 "" to leave the rest to the library's own check, or with requeue in one go: "count", "keep" or "forget"
--          then five a job: its id, and as they were shown: processedOn, attemptsMade, stalledCounter, the token
-- Returns  an answer a job, in their order (parts/jobs)
-- Cost     O(1) a job; with requeue as requeue-jobs
-- Versions Bull 3.10 to 4.x. Their tokens name a process, not an attempt: that it is the same attempt is told by
--          processedOn. `stalled` is left alone: the id in it is what makes the library's check look here.

--- include fence
--- include jobs
--- include seen
--- include back

local function release(key, lock, id, processed, attempts, stalls, token)
  local kind = call("TYPE", key).ok
  if kind ~= "hash" then return kind == "none" and { "missing" } or { "strange", kind } end
  local held = call("TYPE", lock).ok
  if held == "none" then return { "unlocked", where(id, 1000) } end
  if held ~= "string" then return { "strange", held } end
  if call("GET", lock) ~= token then return { "other", call("PTTL", lock) } end
  local answer = changed(key, processed, attempts, stalls)
  if answer then return answer end
  if ARGV[1] ~= "" then
    if is_ghost(key) then return { "ghost" } end
    if call("LREM", ACTIVE, -1, id) == 0 then return { "elsewhere", where(id, 1000) } end
  end
  call("DEL", lock)
  if ARGV[1] ~= "" then give_back(id, key, ARGV[1]) end
  return { "done" }
end

return each_job(1, 5, release)
