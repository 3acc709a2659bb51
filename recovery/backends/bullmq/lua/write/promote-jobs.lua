--[[
  Delayed jobs run now.

  KEYS     the queue's (`QUEUE_KEYS`), then one a job
  ARGV[1]  traits, JSON
  ARGV[2…] five a job: id, and processedOn, attempts, starts, stalls as they were seen
  Returns  one word a job: where it is (waiting, paused, prioritized), missing, moved
  Cost     O(log n) a job; BullMQ 3 with a priority: O(n) of `wait`. 100 jobs: about 2 ms
  Versions 3 to 6. Unlike promoteJobs of 4 to 6 it keeps a job's priority, and sets its `delay` to 0
]]
--- include fence
--- include as-seen
--- include enqueue
--- include events
local WIDTH = 5
local traits = cjson.decode(ARGV[1])
local queue = queue_at(1)

-- Up to BullMQ 4 an entry in the list wakes workers when a delay is over; a job that is there wakes them as well.
local function drop_marker(list)
  local first = redis.call("LINDEX", list, 0)
  if first and string.sub(first, 1, 2) == "0:" then redis.call("LPOP", list) end
end

local function promote(job, id, seen)
  if not is_job(job) then return "missing" end
  if not is_as_seen(job, seen) then return "moved" end
  if redis.call("ZREM", queue.delayed, id) == 0 then return "moved" end

  drop_marker(target_list(queue, traits))
  local state = enqueue(queue, traits, id, priority_of(job), "LPUSH")
  tell(queue, "waiting", "jobId", id, "prev", "delayed")
  redis.call("HSET", job, "delay", 0)
  return state
end

local foreign = foreign_key(queue)
if foreign then return redis.error_reply("WRONGTYPE " .. foreign .. " holds something else") end

local answers = {}
for at = 1, (#ARGV - 1) / WIDTH do
  local first = 2 + (at - 1) * WIDTH
  local seen = { ARGV[first + 1], ARGV[first + 2], ARGV[first + 3], ARGV[first + 4] }
  answers[at] = promote(KEYS[#QUEUE_KEYS + at], ARGV[first], seen)
end
return answers
