--- include target

-- As the library's own recovery does: to the end that runs next, whatever its priority; a prioritized job keeps its
-- entry in `priority` if it still has one. It must leave `stalled`: a check that meets it there in the moment between
-- BRPOPLPUSH and its lock would recover it a second time. `counting`: "count" a stall, "keep", or "forget" them all;
-- a counter that cannot be raised must not stop us half-way.
local function give_back(id, key, counting)
  call("SREM", STALLED, id)
  if counting == "count" then
    redis.pcall("HINCRBY", key, "stalledCounter", 1)
  elseif counting == "forget" then
    call("HDEL", key, "stalledCounter")
  end
  call("RPUSH", target_list(), id)
  call("PUBLISH", STALLED .. "@", id)
end
