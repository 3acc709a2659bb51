-- What it takes to put a removed job back: its own keys as the server dumps them, its score or its neighbour.

-- A job of more than `limit` bytes is not kept.
local function dump(key, limit)
  local size = 0
  for _, field in ipairs({ "data", "opts", "returnvalue", "stacktrace", "failedReason", "progress" }) do
    size = size + call("HSTRLEN", key, field)
  end
  local lines = redis.pcall("LLEN", key .. ":logs")
  if size > limit or type(lines) ~= "number" or lines > 1000 then return false end
  local hash, logs = call("DUMP", key), call("DUMP", key .. ":logs")
  size = #hash + (logs and #logs or 0)
  if size > limit then return false end
  return { hash, logs or "" }
end

-- Who stands next to it in a list, nearer to the tail; "" for the last one, and before Redis 6.0.6, which has no LPOS.
local function neighbour(list, id)
  local at = redis.pcall("LPOS", list, id, "RANK", -1)
  return type(at) == "number" and call("LINDEX", list, at + 1) or ""
end
