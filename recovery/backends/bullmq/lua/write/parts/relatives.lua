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

-- Every child that is written down with any of them is one that was looked up.
local function is_whole_family(job, children)
  local known, members = {}, { job }
  for _, child in ipairs(children) do
    known[child.key] = true
    members[#members + 1] = child.key
  end
  for _, member in ipairs(members) do
    for _, child in ipairs(children_of(member)) do
      if not known[child] then return false end
    end
  end
  return true
end

-- The parent's key when it waits for this job, else "".
local function waiting_parent(parent, job)
  local waits = parent and redis.call("SISMEMBER", parent.key .. ":dependencies", job) == 1
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
