--- include queue
local EVENTS_KEPT = 10000 -- the library's own default
local trimmed = {}

-- How many events are kept; from 5.1.1 on the default is written down.
local function event_limit(queue, traits)
  if queue.event_limit then return queue.event_limit end -- asked once: a script is alone
  local limit = redis.call("HGET", queue.meta, "opts.maxLenEvents")
  if not limit and traits.sets_event_limit then
    redis.call("HSET", queue.meta, "opts.maxLenEvents", EVENTS_KEPT)
  end
  queue.event_limit = tonumber(limit or EVENTS_KEPT) or EVENTS_KEPT
  return queue.event_limit
end

-- Once a queue and script, before the first event of it.
local function trim_events(queue, traits)
  if trimmed[queue.base] then return end
  trimmed[queue.base] = true
  redis.call("XTRIM", queue.events, "MAXLEN", "~", event_limit(queue, traits))
end

local function tell(queue, event, ...)
  redis.call("XADD", queue.events, "*", "event", event, ...)
end

-- With the stream cut to its length by the way, as some acts of the library do.
local function tell_trimmed(queue, traits, event, ...)
  redis.call("XADD", queue.events, "MAXLEN", "~", event_limit(queue, traits), "*", "event", event, ...)
end
