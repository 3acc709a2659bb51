--- include queue
--- include books

-- Relatives by their bases and ids in ARGV, their keys in KEYS. They were looked up before the script ran.
local function relatives_at(first_key, first_arg, many)
  local found = {}
  for at = 1, many do
    local key = KEYS[first_key + at - 1]
    found[at] = { key = key, queue = queue_of(ARGV[first_arg + 2 * at - 2]), id = ARGV[first_arg + 2 * at - 1] }
  end
  return found
end

-- The children that are written down with a job, wherever they are written.
local function children_of(job)
  local found = {}
  for _, listing in ipairs({
    redis.call("SMEMBERS", job .. ":dependencies"), redis.call("HKEYS", job .. ":processed"),
    redis.call("HKEYS", job .. ":failed"), redis.call("ZRANGE", job .. ":unsuccessful", 0, -1),
  }) do
    for _, child in ipairs(listing) do found[#found + 1] = child end
  end
  return found
end

local FAMILY_LIMIT = 200 -- as kin.py has it: more are not even listed

local function count_children(job)
  return redis.call("SCARD", job .. ":dependencies") + redis.call("HLEN", job .. ":processed")
    + redis.call("HLEN", job .. ":failed") + redis.call("ZCARD", job .. ":unsuccessful")
end

-- Whether a child is written down with this job.
local function is_written(job, child)
  return redis.call("SISMEMBER", job .. ":dependencies", child) == 1
    or redis.call("HEXISTS", job .. ":processed", child) == 1
    or redis.call("HEXISTS", job .. ":failed", child) == 1
    or redis.call("ZSCORE", job .. ":unsuccessful", child) ~= false
end

-- Whether a child itself names this job as its parent. What is merely written down with a job may be planted there.
local function names_parent(child, job)
  return redis.pcall("HGET", child, "parentKey") == job
end

-- Every child that was looked up names a member of the family that has it written down, and every other child that
-- does so is known to stay.
local function is_whole_family(job, children, staying)
  local known, is_member, members = {}, { [job] = true }, { job }
  for _, child in ipairs(staying) do known[child] = true end
  for _, child in ipairs(children) do
    known[child.key], is_member[child.key] = true, true
    members[#members + 1] = child.key
  end
  for _, child in ipairs(children) do
    local above = redis.call("HGET", child.key, "parentKey")
    if not is_member[above] or not is_written(above, child.key) then return false end
  end
  local many = 0
  for _, member in ipairs(members) do
    many = many + count_children(member)
    if many > FAMILY_LIMIT then return false end
    for _, child in ipairs(children_of(member)) do
      if not known[child] and names_parent(child, member) then return false end
    end
  end
  return true
end

-- The parent's key when it waits for this job, and this job names it, else "".
local function waiting_parent(parent, job)
  local waits = parent and names_parent(job, parent.key)
    and redis.call("SISMEMBER", parent.key .. ":dependencies", job) == 1
  return waits and parent.key or ""
end

-- True when nothing that is kept under their names, or their queues', can stop the script half-way.
local function are_sound(relatives)
  for _, relative in ipairs(relatives) do
    if foreign_key(relative.queue) or not has_sound_books(relative.key) then return false end
  end
  return true
end

-- Its parent does not wait for it any more. True when it was the last one that it waited for.
local function leave_parent(parent, job)
  if redis.call("EXISTS", parent.key) == 0 then return false end
  local was_pending = redis.call("SREM", parent.key .. ":dependencies", job) == 1
  return was_pending and redis.call("SCARD", parent.key .. ":dependencies") == 0
end
