-- Tells the workers of n8n to give jobs up, as its main process tells them: as the job's progress.
--
-- KEYS     1 to 10 the queue's (parts/jobs); then two a job: its hash, its lock
-- ARGV     1 the channel of the queue's progress, 2 the progress, 3 "anyway" when who listens is not counted whole;
--          then seven a job: its id, and as they were shown: processedOn, attemptsMade, stalledCounter, the token; what
--          is published, for old workers and for others
-- Returns  an answer a job (parts/jobs); done: {"done", how many heard it (in a cluster: on this node)}
-- Cost     O(1) a job
-- Versions n8n 1.0 to 1.54 listens for the progress -1, 1.55 and later for {"kind":"abort-job"}; each lets the other
--          one pass. Nothing in Redis tells which n8n it is, so both are said. Bull itself has no word for it.

--- include fence
--- include jobs
--- include seen

local function abort(key, lock, _, processed, attempts, stalls, token, old, new)
  local kind = call("TYPE", key).ok
  if kind ~= "hash" then return kind == "none" and { "missing" } or { "strange", kind } end
  if call("EXISTS", lock) == 0 then return { "unlocked", "" } end
  if call("TYPE", lock).ok ~= "string" or call("GET", lock) ~= token then return { "other", call("PTTL", lock) } end
  local moved = changed(key, processed, attempts, stalls)
  if moved then return moved end
  call("PUBLISH", ARGV[1], old)
  local heard = call("PUBLISH", ARGV[1], new) -- first, as an ACL may forbid it; who listens hears it after the script
  if heard > 0 or ARGV[3] == "anyway" then call("HSET", key, "progress", ARGV[2]) end
  return { "done", heard }
end

return each_job(3, 7, abort)
