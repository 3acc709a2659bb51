--[[
  Failed or completed jobs run once more.

  KEYS     the queue's (`QUEUE_KEYS`), then two a job: its own, and its parent's (its own again when it has none)
  ARGV[1]  traits, JSON
  ARGV[2]  "1": forget the attempts made
  ARGV[3]  "1": forget stalls and a deferred failure
  ARGV[4…] eight a job: id, failed or completed, LPUSH or RPUSH, "1" when it has a parent,
           processedOn, attempts, starts, stalls as they were seen
  Returns  one word a job: where it is (waiting, paused, prioritized), missing, moved, or books (its parent keeps
           something else under the names of its books)
  Cost     O(log n) a job; BullMQ 3 with a priority: O(n) of `wait`. 100 jobs: about 2 ms
  Versions 3 to 6. Unlike the library (one job before 6.3.5, all of them in every version) it keeps a job's priority
]]
--- include fence
--- include books
--- include as-seen
--- include enqueue
--- include events
local WIDTH = 8
local RESULT = { failed = "failedReason", completed = "returnvalue" }
local traits = cjson.decode(ARGV[1])
local queue = queue_at(1)

local function retry(job, parent, id, from, push, seen)
  if not is_job(job) then return "missing" end
  if not is_as_seen(job, seen) then return "moved" end
  if parent and redis.call("HGET", job, "parentKey") ~= parent then return "moved" end
  if parent and not has_sound_books(parent) then return "books" end
  if redis.call("ZREM", queue[from], id) == 0 then return "moved" end

  redis.call("HDEL", job, "finishedOn", "processedOn", RESULT[from])
  if ARGV[2] == "1" then redis.call("HDEL", job, "atm", "ats", "attemptsMade") end
  if ARGV[3] == "1" then redis.call("HDEL", job, "stc", "stalledCounter", "defa") end
  local state = enqueue(queue, traits, id, priority_of(job), push)
  if parent and redis.call("EXISTS", parent) == 1 then put_child_back(parent, job, from) end
  tell_trimmed(queue, traits, "waiting", "jobId", id, "prev", from)
  return state
end

local foreign = foreign_key(queue)
if foreign then return redis.error_reply("WRONGTYPE " .. foreign .. " holds something else") end

local answers = {}
for at = 1, (#ARGV - 3) / WIDTH do
  local own, first = #QUEUE_KEYS + 2 * at - 1, 4 + (at - 1) * WIDTH
  local parent = ARGV[first + 3] == "1" and KEYS[own + 1]
  local seen = { ARGV[first + 4], ARGV[first + 5], ARGV[first + 6], ARGV[first + 7] }
  answers[at] = retry(KEYS[own], parent, ARGV[first], ARGV[first + 1], ARGV[first + 2], seen)
end
return answers
