-- One job as it is at one moment: where it is, its fields as far as they are short, who holds it. Changes nothing.
--
-- KEYS     the job, its lock, then the lists and sorted sets of its queue in the order of a job's life
-- ARGV     1 id; 2 one letter a place, l for a list and z for a sorted set; 3 number of the place where it is expected,
--          0 for none; 4 how many ids of a list are searched; 5 bytes of a text at most, 6 of all texts;
--          7 bytes of the lock's token at most; 8, 9 how many numbers and texts; then their names, texts in the order in
--          which the bytes are spent, then the names of fields that are only measured
-- Returns  number of its place, 0 for none and -1 where a list is too long or may not be searched; its score or false;
--          the numbers; the lengths of texts and of what is measured; the texts, false for what is too long or empty;
--          token and TTL of the lock. A command that is refused leaves its error there.
-- Cost     O(log n) where it is expected in a sorted set, else O(n) for each list: 1 ms for 100,000 ids
-- Versions all of both libraries; before Redis 6.0.6 (LPOS) no list can be searched

--- include read-job

local id, places, expected, depth = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local limits = { longest = tonumber(ARGV[5]), left = tonumber(ARGV[6]), token = tonumber(ARGV[7]) }
local numbers, texts = tonumber(ARGV[8]), tonumber(ARGV[9])
local FIRST_NAME = 10

local is_sure = true -- every place that was searched says whether it has the job

-- The score, or true for a list; false when it is not there.
local function found_in(place)
  local key = KEYS[2 + place]
  local reply
  if places:sub(place, place) == "z" then
    reply = redis.pcall("ZSCORE", key, id)
  else
    reply = redis.pcall("LPOS", key, id, "RANK", -1, "MAXLEN", depth)
    if reply == false and redis.pcall("LLEN", key) > depth then is_sure = false end
  end
  if is_error(reply) then
    is_sure = false
    return false
  end
  return reply
end

local function find()
  if expected > 0 then
    local score = found_in(expected)
    if score then return expected, score end
  end
  for _, kind in ipairs({ "z", "l" }) do
    for place = #places, 1, -1 do
      if place ~= expected and places:sub(place, place) == kind then
        local score = found_in(place)
        if score then return place, score end
      end
    end
  end
  return is_sure and 0 or -1, false
end

local place, score = find()
if place == -1 then return { place } end

local names = {}
for at = FIRST_NAME, #ARGV do table.insert(names, ARGV[at]) end
return { place, score, read_job(KEYS[1], KEYS[2], names, numbers, texts, limits) }
