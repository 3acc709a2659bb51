--[[
  Active jobs without a lock fail here and now.

  KEYS     the queue's (parts/queue.lua), then one a job, then those of its parents and of the metrics
  ARGV[1]  traits, JSON
  ARGV[2]  now, ms
  ARGV[3]  the reason
  ARGV[4]  "stall": as the library's own stalled check before 5.53.2; "direct": as a worker that gives up for good
  ARGV[5]  "1": what that changes in other queues, too
  ARGV[6…] a block for each job (parts/read-failing.lua)
  Returns  one word a job: failed, removed (by its removeOnFail), each with how many parents heard of it; dropped (an id
           without a job), locked, moved, children, others (a job of another queue would change)
  Cost     O(n) of `active` a job, little for the oldest; up to 1,000 older failed jobs are removed: 5 ms
  Versions 3 to 5.53.1; later only when no worker is to be waited for
]]
--- include fence
--- include take
--- include read-failing
--- include fail-active
local traits = cjson.decode(ARGV[1])
local act = { now = tonumber(ARGV[2]), reason = ARGV[3], is_stall = ARGV[4] == "stall", others = ARGV[5] == "1" }
local queue = queue_at(1)

-- A child of an older version may still wait for children of its own; the library refuses to fail that directly.
local function stands_against(key, job)
  if (redis.call("HGET", key, "parentKey") or "") ~= job.parent then return "moved" end
  if not is_next_as_read(queue, traits, job) then return "moved" end
  if not act.others and reaches_others(queue, traits, key, job) then return "others" end
  local waits = not act.is_stall and not traits.has_marker and redis.call("SCARD", key .. ":dependencies") > 0
  return waits and "children" or nil
end

local function fail(key, job)
  local word = objection(key, job.seen, "")
  if word == "ghost" then return take(queue, job.id) and "dropped" or "moved" end
  word = word or stands_against(key, job)
  if word then return word end
  if not take(queue, job.id) then return "moved" end
  return fail_active(queue, traits, key, job, act)
end

local foreign = foreign_key(queue)
if foreign then return redis.error_reply("WRONGTYPE " .. foreign .. " holds something else") end

local jobs, answers = read_failing(6), {}
for at, job in ipairs(jobs) do answers[at] = fail(KEYS[#QUEUE_KEYS + at], job) end
if not act.is_stall then tell_if_drained(queue) end
return answers
