--- include queue
local CLASS = 0x100000000 -- scores of one priority: priority * 2^32 + a counter

-- BullMQ 3: among the others of `wait`, by how many stand before it.
local function insert_by_priority(queue, target, priority, id, is_first)
  redis.call("ZADD", queue.priority, priority, id)
  local last = is_first and priority - 1 or priority
  local ahead = redis.call("ZCOUNT", queue.priority, 0, last) - (is_first and 0 or 1)
  local pivot = redis.call("LINDEX", target, redis.call("LLEN", target) - ahead)
  if pivot then
    redis.call("LINSERT", target, "BEFORE", pivot, id)
  else
    redis.call("RPUSH", target, id)
  end
end

-- BullMQ >= 4: behind those of its own priority, or before them. Version 4 wakes idle workers by an entry in `wait`.
local function add_prioritized(queue, traits, priority, id, is_first)
  local counted = is_first and 0 or redis.pcall("INCR", queue.pc)
  local place = type(counted) == "number" and counted % CLASS or 0
  redis.call("ZADD", queue.prioritized, priority * CLASS + place, id)
  if traits.has_marker then
    wake(queue, traits)
  elseif not is_paused(queue) and redis.call("LLEN", queue.wait) == 0 then
    redis.call("LPUSH", queue.wait, "0:0")
  end
end

-- A job that may run: where the library would put it. `push` (LPUSH or RPUSH) is for a job without a priority;
-- `is_first`: before all others of its priority. Answers the state that it is in now.
local function enqueue(queue, traits, id, priority, push, is_first)
  local target = queue.target or target_list(queue, traits)
  queue.target = target -- asked once: a script is alone
  if priority == 0 then
    redis.call(push, target, id)
    wake(queue, traits)
  elseif traits.has_prioritized then
    add_prioritized(queue, traits, priority, id, is_first)
    return "prioritized"
  else
    insert_by_priority(queue, target, priority, id, is_first)
  end
  return target == queue.paused and "paused" or "waiting"
end

-- Neither nan nor infinite: ZADD would refuse it after the job was taken from its place.
local function priority_of(job)
  local priority = tonumber(redis.call("HGET", job, "priority") or 0)
  return priority and priority > 0 and priority < 2 ^ 53 and priority or 0
end
