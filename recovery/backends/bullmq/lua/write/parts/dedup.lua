--- include queue

-- A job that has ended lets go of its deduplication key, unless that lives for a time of its own, or is another's
-- by now (before 5.50 the library took that for its own, too).
local function let_go_of_dedup(queue, traits, dedup, id)
  if dedup == "" or not traits.deduplicates then return end
  local key = queue.base .. ":de:" .. dedup
  if redis.call("PTTL", key) <= 0 and redis.call("GET", key) == id then redis.call("DEL", key) end
end
