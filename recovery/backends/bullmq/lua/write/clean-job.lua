--[[
  One job is taken away by a clean or a drain, as hard as the library does it: without an event, and with its parent
  when that stands in the same queue and waited for nothing else.

  KEYS     the queue's (`QUEUE_KEYS`), the job's; its parent's, that one's parent's, and so on
  ARGV[1]  traits, JSON
  ARGV[2]  now, ms
  ARGV[3]  id
  ARGV[4]  the list or set it stands in
  ARGV[5]  only when it is not younger than this, ms; "" for whatever its age
  ARGV[6]  where its age stands: score, or fields of which the first that is set counts, with commas
  ARGV[7]  bytes of a job to be kept at most
  ARGV[8]  "1": also when a parent in another queue waits for it
  ARGV[9…] base and id of the parent, of that one's parent, …
  Returns  one word (done, missing, moved, young, locked, scheduler, foreign, books, others: a parent in another queue
           waits for it); when done, what is kept of it and of each parent that went with it
  Cost     O(log n); in a list O(n), but the oldest stand where the search begins
  Versions 3 to 6. Unlike the library it never takes one that is locked, nor a scheduler's next one (before 5.16)
]]
--- include fence
--- include erase
--- include keepsake
--- include move-parent-to-wait
--- include relatives
local traits, now, id, place = cjson.decode(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local queue, job, most = queue_at(1), KEYS[#QUEUE_KEYS + 1], tonumber(ARGV[7])
local ancestors = relatives_at(#QUEUE_KEYS + 2, 9, (#ARGV - 8) / 2)

local function is_young(score)
  if ARGV[5] == "" then return false end
  local at = ARGV[6] == "score" and score
  for field in string.gmatch(ARGV[6], "[^,]+") do
    at = at or redis.call("HGET", job, field)
  end
  return (tonumber(at or 0) or 0) > tonumber(ARGV[5])
end

local function objection(score)
  local hindered = hindrance(queue, job, id)
  if hindered then return hindered end
  if redis.call("EXISTS", job) == 1 and is_young(score) then return "young" end
  if not are_sound(ancestors) then return "books" end
  if ancestors[1] and redis.call("HGET", job, "parentKey") ~= ancestors[1].key then return "moved" end
  return nil
end

-- Those above it that go with it: each waits in the same queue, and for nothing but the one below.
local function falling()
  local found, below = {}, job
  for at, parent in ipairs(ancestors) do
    local waits = redis.call("ZSCORE", queue["waiting-children"], parent.id)
    local is_last = waiting_parent(parent, below) ~= "" and redis.call("SCARD", parent.key .. ":dependencies") == 1
    if parent.queue.base ~= queue.base or not waits or not is_last then break end
    local dumps, size = dumps_of(parent.key, most)
    local above = waiting_parent(ancestors[at + 1], parent.key)
    found[at] = keepsake(parent.id, "waiting-children", waits, "", above, dumps, size)
    below = parent.key
  end
  return found, below
end

local is_there, score, before = place_of(queue, place, id)
if not is_there then return { "moved" } end
local refused = objection(score)
if refused then return { refused } end
local dumps, size = dumps_of(job, most)
local waiting_for_it = waiting_parent(ancestors[1], job)
local fallen, highest = falling()
local next_up = ancestors[#fallen + 1]
if ARGV[8] ~= "1" and waiting_parent(next_up, highest) ~= "" and next_up.queue.base ~= queue.base then
  return { "others" }
end
if not leave(queue, place, id) then return { "moved" } end

erase(queue, job, id)
for at = 1, #fallen do
  leave(queue, "waiting-children", ancestors[at].id)
  erase(queue, ancestors[at].key, ancestors[at].id)
end
if next_up and leave_parent(next_up, highest) then
  release_parent(next_up.queue, traits, next_up.key, next_up.id, now)
end
return { "done", keepsake(id, place, score, before, waiting_for_it, dumps, size), unpack(fallen) }
