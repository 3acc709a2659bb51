--- include queue
local MINUTE = 60000
local POINTS = 20160 -- two weeks of minutes: the most that the library suggests to keep; the next worker cuts it

-- One more failed job, where workers count them: a total, and a list of its growth minute by minute, newest first.
local function count_failure(queue, traits, now)
  local totals, points = queue.base .. ":metrics:failed", queue.base .. ":metrics:failed:data"
  if redis.call("EXISTS", totals, queue.base .. ":metrics:completed") == 0 then return end
  local raised = redis.pcall("HINCRBY", totals, "count", 1)
  if type(raised) ~= "number" then return end
  local count = raised - 1
  local last = tonumber(redis.call("HGET", totals, "prevTS") or "")
  if not last then return redis.call("HSET", totals, "prevTS", now, "prevCount", 0) end
  local passed = (now - last) / MINUTE
  if traits.aligns_metrics then passed = math.floor(now / MINUTE) - math.floor(last / MINUTE) end
  passed = math.min(math.floor(passed), POINTS)
  if passed <= 0 then return end
  local grown = count - (tonumber(redis.call("HGET", totals, "prevCount") or 0) or 0)
  if type(redis.pcall("LPUSH", points, grown)) ~= "number" then return end
  for _ = 2, passed do redis.call("LPUSH", points, 0) end
  redis.call("HSET", totals, "prevCount", count, "prevTS", now)
end
