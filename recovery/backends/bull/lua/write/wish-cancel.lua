-- Tells whoever listens that jobs are to be given up.
--
-- KEYS     1 to 10 the queue's (parts/jobs); then two a job: its hash, its lock
-- ARGV     1 the channel; then six a job: its id, and as they were shown: processedOn, attemptsMade, stalledCounter,
--          the token; the message
-- Returns  an answer a job (parts/jobs); done: {"done", how many heard it (in a cluster: on this node)}
-- Cost     O(1) a job
-- Versions Bull 3.10 to 4.x: none of them knows how to cancel; a worker of the application's own must listen

--- include fence
--- include jobs
--- include seen

local function wish(key, lock, _, processed, attempts, stalls, token, message)
  local kind = call("TYPE", key).ok
  if kind ~= "hash" then return kind == "none" and { "missing" } or { "strange", kind } end
  if call("EXISTS", lock) == 0 then return { "unlocked", "" } end
  if call("TYPE", lock).ok ~= "string" or call("GET", lock) ~= token then return { "other", call("PTTL", lock) } end
  return changed(key, processed, attempts, stalls) or { "done", call("PUBLISH", ARGV[1], message) }
end

return each_job(1, 6, wish)
