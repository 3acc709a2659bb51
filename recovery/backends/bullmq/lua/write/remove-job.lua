--[[
  One job is taken away for good, with its children when asked: those that name it as their parent, and no others.

  KEYS      the queue's (`QUEUE_KEYS`), the job's; its parent's; those of its children, theirs, and so on
  ARGV[1]   traits, JSON
  ARGV[2]   now, ms
  ARGV[3]   id
  ARGV[4]   the list or set it stands in, "" when in none
  ARGV[5…8] processedOn, attempts, starts, stalls as they were seen
  ARGV[9]   bytes of it to be kept at most
  ARGV[10]  "1": with its children
  ARGV[11]  "1": what that changes in other queues, too
  ARGV[12]  how many parents: 0 or 1
  ARGV[13]  how many children stay, as they are in other queues
  ARGV[14…] the keys of those; then base and id of the parent, then of each child
  Returns   one word (done, missing, moved, locked, scheduler, foreign, books, family, others: a parent in another queue
            waits for it); when done, what is kept of it
  Cost      O(log n); in a list O(n); with children so much for each of them
  Versions  3 to 6. Unlike the library it moves a parent to where its priority and delay belong
]]
--- include fence
--- include as-seen
--- include erase
--- include events
--- include keepsake
--- include move-parent-to-wait
--- include relatives
local traits, now, id, place = cjson.decode(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local queue, job = queue_at(1), KEYS[#QUEUE_KEYS + 1]
local with_children, others, parents = ARGV[10] == "1", ARGV[11] == "1", tonumber(ARGV[12])
local staying, first = { unpack(ARGV, 14, 13 + ARGV[13]) }, 14 + ARGV[13]
local parent = relatives_at(#QUEUE_KEYS + 2, first, parents)
local children = relatives_at(#QUEUE_KEYS + 2 + parents, first + 2 * parents, (#ARGV - first + 1) / 2 - parents)
local PLACES = { "completed", "waiting-children", "delayed", "failed", "prioritized", "wait", "paused", "active" }

local function reaches_others()
  if waiting_parent(parent[1], job) ~= "" and parent[1].queue.base ~= queue.base then return true end
  for _, child in ipairs(children) do
    if child.queue.base ~= queue.base then return true end
  end
  return false
end

local function objection()
  if foreign_key(queue) then return "foreign" end
  local hindered = hindrance(queue, job, id)
  if hindered then return hindered end
  if not is_as_seen(job, { ARGV[5], ARGV[6], ARGV[7], ARGV[8] }) then return "moved" end
  if not has_sound_books(job) or not are_sound(parent) or not are_sound(children) then return "books" end
  if parent[1] and redis.call("HGET", job, "parentKey") ~= parent[1].key then return "moved" end
  if with_children and not is_whole_family(job, children, staying) then return "family" end
  if not others and reaches_others() then return "others" end
  for _, child in ipairs(children) do
    local theirs = hindrance(child.queue, child.key, child.id)
    if theirs then return theirs .. " child" end
  end
  return nil
end

-- Out of the place it is known to stand in, or else of any; then all its keys.
local function remove(from, key, its_id, was)
  for _, other in ipairs(PLACES) do
    if was == "" and leave(from, other, its_id) then was = other end
  end
  local many = erase(from, key, its_id)
  if many > 0 then tell_trimmed(from, traits, "removed", "jobId", its_id, "prev", was == "" and "unknown" or was) end
  return was ~= "" or many > 0
end

local refused = objection()
if refused then return { refused } end
local is_there, score, before = place == "", "", ""
if place ~= "" then is_there, score, before = place_of(queue, place, id) end
local waiting_for_it = waiting_parent(parent[1], job)
local dumps, size = dumps_of(job, tonumber(ARGV[9]))
if not is_there or (place ~= "" and not leave(queue, place, id)) then
  return { redis.call("EXISTS", job) == 1 and "moved" or "missing" }
end

if parent[1] and leave_parent(parent[1], job) then
  release_parent(parent[1].queue, traits, parent[1].key, parent[1].id, now)
end
for _, child in ipairs(children) do remove(child.queue, child.key, child.id, "") end
if not remove(queue, job, id, place) then return { "missing" } end
return { "done", keepsake(id, place, score, before, waiting_for_it, dumps, size) }
