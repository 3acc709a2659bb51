-- What every script on jobs is given first, and where a queue keeps its jobs.
--
-- KEYS 1 to 10 are wait, paused, active, delayed, completed, failed, priority, stalled, meta-paused, limiter:index.
-- Behind all keys and arguments that a script names stand the fence and the epoch, which every script takes (fence).
-- An answer is a list: {"done", …}, or why not: {"locked", ms left}, {"unlocked"}, {"other"} token, {"missing"},
-- {"ghost"}, {"changed", field}, {"elsewhere", state or ""}, {"strange", type}, {"unproven"}.

local call = redis.call
local WAIT, PAUSED, ACTIVE, DELAYED, COMPLETED, FAILED, PRIORITY, STALLED, FLAG, LIMITED = unpack(KEYS, 1, 10)
local PLACES = {
  { state = "active", key = ACTIVE, type = "list" },
  { state = "waiting", key = WAIT, type = "list" },
  { state = "paused", key = PAUSED, type = "list" },
  { state = "delayed", key = DELAYED, type = "zset" },
  { state = "completed", key = COMPLETED, type = "zset" },
  { state = "failed", key = FAILED, type = "zset" },
}
local OTHERS = { [PRIORITY] = "zset", [STALLED] = "set", [LIMITED] = "hash" }

-- Scripts do not roll back: a key of another type must be met before the first write, not after it.
local function wrong_type()
  local function is_wrong(key, wanted)
    local kind = call("TYPE", key).ok
    return kind ~= "none" and kind ~= wanted
  end
  local wrong
  for _, place in ipairs(PLACES) do wrong = wrong or (is_wrong(place.key, place.type) and place.key) end
  for key, wanted in pairs(OTHERS) do wrong = wrong or (is_wrong(key, wanted) and key) end
  return wrong and redis.error_reply("WRONGTYPE " .. wrong .. " is no key of a queue: nothing was changed")
end

-- One answer a job: `act` is given its hash, its lock, and its `width` arguments, which begin behind the first `skip`.
local function each_job(skip, width, act)
  local wrong = wrong_type()
  if wrong then return wrong end
  local answers = {}
  for number = 1, (#ARGV - skip) / width do
    local key, arg = 10 + 2 * number - 1, skip + width * (number - 1) + 1
    answers[number] = act(KEYS[key], KEYS[key + 1], unpack(ARGV, arg, arg + width - 1))
  end
  return answers
end

local function place_of(state)
  for _, place in ipairs(PLACES) do
    if place.state == state then return place end
  end
end

-- Where a job is now; "" when it is nowhere. Lists are searched `depth` ids deep from both ends (0: all of it).
local function where(id, depth)
  for _, place in ipairs(PLACES) do
    if place.type == "zset" then
      if call("ZSCORE", place.key, id) then return place.state end
    else
      for _, rank in ipairs({ -1, 1 }) do
        local at = redis.pcall("LPOS", place.key, id, "RANK", rank, "MAXLEN", depth) -- not before Redis 6.0.6
        if type(at) == "number" then return place.state end
      end
    end
  end
  return ""
end
