--- include move-parent-to-wait
--- include dedup
--- include keep-failed

-- Before 5.49.2: a parent whose child failed fails with it. True when it did.
local function fail_parent(queue, traits, parent, reason, now)
  if redis.call("ZREM", queue["waiting-children"], parent.id) == 0 then return false end
  redis.call("ZADD", queue.failed, now, parent.id)
  redis.call("HSET", parent.key, "failedReason", reason, "finishedOn", now)
  tell(queue, "failed", "jobId", parent.id, "failedReason", reason, "prev", "waiting-children")
  let_go_of_dedup(queue, traits, parent.dedup, parent.id)
  return true
end

-- From then on the worker that takes it next fails it.
local function defer_parent(queue, traits, parent, reason, now)
  if redis.call("EXISTS", parent.key) == 0 then return end
  local waits = redis.call("ZREM", queue["waiting-children"], parent.id) == 1
  local is_delayed = not waits and redis.call("ZREM", queue.delayed, parent.id) == 1
  if is_delayed then redis.call("HSET", parent.key, "delay", 0) end
  if waits or is_delayed or not redis.call("ZSCORE", queue.failed, parent.id) then
    redis.call("HSET", parent.key, "defa", reason)
  end
  if waits or is_delayed then move_parent_to_wait(queue, traits, parent.key, parent.id, now) end
end

local tell_parent = {}

function tell_parent.fpof(queue, traits, parent, child, _, now)
  local books = parent.key .. ":unsuccessful"
  if traits.settles_parents then
    if redis.call("SREM", parent.key .. ":dependencies", child) == 0 then return false end
    redis.call("ZADD", books, now, child)
  elseif traits.lists_unsuccessful then
    redis.call("ZADD", books, now, child)
  end
  local reason = "child " .. child .. " failed"
  if traits.defers_parents then
    defer_parent(queue, traits, parent, reason, now)
    return false
  end
  return fail_parent(queue, traits, parent, reason, now)
end

-- It goes on at once, whatever its other children do.
function tell_parent.cpof(queue, traits, parent, child, reason, now)
  if redis.call("SREM", parent.key .. ":dependencies", child) == 0 then return end
  redis.call("HSET", parent.key .. ":failed", child, reason)
  release_parent(queue, traits, parent.key, parent.id, now)
end

-- It does not wait for this child any more.
function tell_parent.rdof(queue, traits, parent, child, _, now)
  if redis.call("SREM", parent.key .. ":dependencies", child) == 0 then return false end
  if redis.call("SCARD", parent.key .. ":dependencies") == 0 then
    release_parent(queue, traits, parent.key, parent.id, now)
  end
  return true
end

-- The same, and it is written down why the child failed.
function tell_parent.idof(queue, traits, parent, child, reason, now)
  if tell_parent.rdof(queue, traits, parent, child, reason, now) then
    redis.call("HSET", parent.key .. ":failed", child, reason)
  end
end

-- Whether the child names this parent, and is one that the parent waits for: what a job says of its parent may be
-- planted. A wrong type is an error, and no 1.
local function points_back(parent, child)
  return redis.pcall("HGET", child, "parentKey") == parent.key
    and redis.pcall("SISMEMBER", parent.key .. ":dependencies", child) == 1
end

-- Whether a failure changes a job of another queue: a parent that hears of it, or one that waits for a job which is
-- removed as its own options say.
local function reaches_others(queue, traits, key, job)
  local child = key
  for _, parent in ipairs(job.parents) do
    if not points_back(parent, child) then break end
    if parent.base ~= queue.base then return true end
    if parent.option ~= "fpof" or traits.defers_parents then break end
    child = parent.key
  end
  return not job.is_kept and waits_elsewhere(queue, key)
end

-- `parents`: from the job's own upwards, each with what its child's failure does to it. It goes up only as long as
-- each of them fails in its turn. Answers how many heard of it.
local function tell_parents(traits, parents, child, reason, now)
  for at, parent in ipairs(parents) do
    if not points_back(parent, child) then return at - 1 end
    local queue = queue_of(parent.base)
    local has_failed = tell_parent[parent.option](queue, traits, parent, child, reason, now)
    if parent.option ~= "fpof" or not has_failed then return at end
    child, reason = parent.key, "child " .. child .. " failed"
  end
  return #parents
end
