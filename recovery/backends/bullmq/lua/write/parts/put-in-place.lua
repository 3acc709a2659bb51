--- include enqueue
--- include events
--- include delay-marker
local IN_LIST = { wait = true, paused = true, active = true }
local EVENTS = { wait = "waiting", paused = "waiting", prioritized = "waiting", delayed = "delayed" }

-- In front of its old neighbour. When that has been taken, it would have run by now: it is next.
local function stand_in_list(queue, traits, job, id, place)
  local is_waiting = place.name ~= "active"
  local list = is_waiting and target_list(queue, traits) or queue.active
  local priority = priority_of(job)
  if is_waiting and priority > 0 and not traits.has_prioritized then redis.call("ZADD", queue.priority, priority, id) end
  if place.neighbour == "" or redis.call("LINSERT", list, "BEFORE", place.neighbour, id) < 1 then
    redis.call("RPUSH", list, id)
  end
  if is_waiting then wake(queue, traits) end
end

local function stand_in_set(queue, traits, id, place)
  redis.call("ZADD", queue[place.name], place.score, id)
  if place.name == "delayed" then wake_when_due(queue, traits) end
  if place.name ~= "prioritized" then return end
  wake(queue, traits)
  if not traits.has_marker and not is_paused(queue) and redis.call("LLEN", queue.wait) == 0 then
    redis.call("LPUSH", queue.wait, "0:0")
  end
end

-- As if it were added: whoever listens learns that it is there.
local function announce(queue, job, id, place)
  local event = EVENTS[place.name]
  if not event then return end
  tell(queue, "added", "jobId", id, "name", redis.call("HGET", job, "name") or "")
  if event == "waiting" then return tell(queue, event, "jobId", id) end
  tell(queue, event, "jobId", id, "delay", string.format("%.0f", math.floor(tonumber(place.score) / STEP)))
end

local function put_in_place(queue, traits, job, id, place)
  if IN_LIST[place.name] then
    stand_in_list(queue, traits, job, id, place)
  else
    stand_in_set(queue, traits, id, place)
  end
  announce(queue, job, id, place)
end
