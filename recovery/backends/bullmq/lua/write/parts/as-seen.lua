-- Whether a job still is as it was when somebody decided: the fence of every act.

local function whole(value)
  return math.floor(tonumber(value or 0) or 0)
end

-- `seen`: processedOn, attempts, starts, stalls; "" for none. A field that is missing is as good as 0.
local function is_as_seen(job, seen)
  local now = redis.call("HMGET", job, "processedOn", "atm", "attemptsMade", "ats", "stc", "stalledCounter")
  local same = { now[1], now[2] or now[3], now[4], now[5] or now[6] }
  for at = 1, 4 do
    if whole(same[at]) ~= whole(seen[at]) then return false end
  end
  return true
end

-- A hash under the job's key, and not what a removed job left of it. An error is no 1, so a foreign type is none.
local function is_job(job)
  for _, field in ipairs({ "timestamp", "name", "data" }) do
    if redis.pcall("HEXISTS", job, field) == 1 then return true end
  end
  return false
end
