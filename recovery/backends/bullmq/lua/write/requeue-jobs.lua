--[[
  Active jobs without a lock go back to work, or to the worker that fails them at once.

  KEYS     the queue's (parts/queue.lua), then one a job
  ARGV[1]  traits, JSON
  ARGV[2]  "1": it counts as a stall
  ARGV[3]  "1": forget stalls and a deferred failure
  ARGV[4]  the reason of a deferred failure (`defa`, >= 5.49.2), or ""; with it ids without a job are taken out, too
  ARGV[5…] five a job: id, and processedOn, attempts, starts, stalls as they were seen
  Returns  one word a job: where it is (waiting, paused, prioritized), dropped (an id without a job), ghost, locked, moved
  Cost     O(n) of `active` a job, little for the oldest. 100 jobs in list order: about 2 ms
  Versions 3 to 6
]]
--- include fence
--- include recover
local WIDTH = 5
local traits = cjson.decode(ARGV[1])
local how = { counts = ARGV[2] == "1", forgets = ARGV[3] == "1", reason = ARGV[4] }
local queue = queue_at(1)

local function requeue(job, id, seen)
  local word = objection(job, seen, "")
  if word == "ghost" and how.reason ~= "" then return take(queue, id) and "dropped" or "moved" end
  if word then return word end
  if not take(queue, id) then return "moved" end
  return recover(queue, traits, job, id, how)
end

local foreign = foreign_key(queue)
if foreign then return redis.error_reply("WRONGTYPE " .. foreign .. " holds something else") end

local answers = {}
for at = 1, (#ARGV - 4) / WIDTH do
  local first = 5 + (at - 1) * WIDTH
  local seen = { ARGV[first + 1], ARGV[first + 2], ARGV[first + 3], ARGV[first + 4] }
  answers[at] = requeue(KEYS[#QUEUE_KEYS + at], ARGV[first], seen)
end
return answers
