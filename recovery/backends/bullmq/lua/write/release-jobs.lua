--[[
  Locks of active jobs are taken away, each only if it still is the one that was shown.

  KEYS     the queue's (parts/queue.lua), then one a job
  ARGV[1]  traits, JSON
  ARGV[2]  "1": and the job goes back to work at once; else the library's stalled check finds it
  ARGV[3]  "1": that counts as a stall
  ARGV[4]  "1": forget stalls and a deferred failure
  ARGV[5…] six a job: id, token, and processedOn, attempts, starts, stalls as they were seen
  Returns  one word a job: released, or where it is then; ghost, locked (by another token), unlocked (it ended by itself), moved
  Cost     O(1) a job; with ARGV[2] O(n) of `active`, little for the oldest. 100 jobs in list order: about 2 ms
  Versions 3 to 6
]]
--- include fence
--- include recover
local WIDTH = 6
local traits = cjson.decode(ARGV[1])
local with_requeue = ARGV[2] == "1"
local how = { counts = ARGV[3] == "1", forgets = ARGV[4] == "1", reason = "" }
local queue = queue_at(1)

local function release(job, id, token, seen)
  local word = objection(job, seen, token)
  if word then return word end
  if with_requeue and not take(queue, id) then return "moved" end
  redis.call("DEL", job .. ":lock")
  return with_requeue and recover(queue, traits, job, id, how) or "released"
end

local foreign = foreign_key(queue)
if foreign then return redis.error_reply("WRONGTYPE " .. foreign .. " holds something else") end

local answers = {}
for at = 1, (#ARGV - 4) / WIDTH do
  local first = 5 + (at - 1) * WIDTH
  local seen = { ARGV[first + 2], ARGV[first + 3], ARGV[first + 4], ARGV[first + 5] }
  answers[at] = release(KEYS[#QUEUE_KEYS + at], ARGV[first], ARGV[first + 1], seen)
end
return answers
