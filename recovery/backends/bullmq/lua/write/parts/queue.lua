-- The keys of a queue by name, and what most scripts ask of it. `traits` is how this version writes. Behind all keys and
-- arguments that a script names stand the fence and the epoch, which every script takes (fence).
local QUEUE_KEYS = { -- in the order of `calls.py`
  "wait", "paused", "active", "delayed", "priority", "prioritized", "pc", "marker", "meta", "events",
  "waiting-children", "completed", "failed", "repeat", "stalled",
}
local KINDS = {
  wait = "list", paused = "list", active = "list", delayed = "zset", priority = "zset", prioritized = "zset",
  pc = "string", marker = "zset", meta = "hash", events = "stream", ["waiting-children"] = "zset",
  completed = "zset", failed = "zset", ["repeat"] = "zset", stalled = "set",
}

-- The queue whose keys begin at KEYS[first].
local function queue_at(first)
  local queue = { base = string.sub(KEYS[first], 1, -#":wait" - 1) }
  for at, name in ipairs(QUEUE_KEYS) do queue[name] = KEYS[first + at - 1] end
  return queue
end

-- The queue of a parent, which only its child knows. Whoever asks has compared its slot before.
local function queue_of(base)
  local queue = { base = base }
  for _, name in ipairs(QUEUE_KEYS) do queue[name] = base .. ":" .. name end
  return queue
end

-- A key that holds what no library keeps there, or nil. Scripts do not roll back: to be asked before any write.
local function foreign_key(queue)
  for _, name in ipairs(QUEUE_KEYS) do
    local kind = redis.call("TYPE", queue[name]).ok
    if kind ~= "none" and kind ~= KINDS[name] then return queue[name] end
  end
  return nil
end

local function is_paused(queue)
  return redis.call("HEXISTS", queue.meta, "paused") == 1
end

-- Paused, or as many are active as the queue allows. Ask after the LREM from `active`: that makes room.
local function is_held(queue, traits)
  if is_paused(queue) then return true end
  local limit = traits.knows_concurrency and tonumber(redis.call("HGET", queue.meta, "concurrency") or "")
  return limit and redis.call("LLEN", queue.active) >= limit or false
end

-- The list that waiting jobs go to.
local function target_list(queue, traits)
  return is_paused(queue) and not traits.pauses_in_place and queue.paused or queue.wait
end

-- Wake one idle worker: from 5 on they wait for `marker`; older ones wait for the list itself.
local function wake(queue, traits)
  if queue.is_awake or not traits.has_marker or is_held(queue, traits) then return end
  redis.call("ZADD", queue.marker, 0, "0")
  queue.is_awake = true -- once a script is enough
end
