-- Some jobs of one list or sorted set as they are at one moment. Changes nothing.
--
-- KEYS     the list or sorted set, then for each job: the job, its lock
-- ARGV     1 l for a list or z for a sorted set; 2, 3 from where to where the list is read; 4 bytes of a text at most,
--          5 of all texts; 6 bytes of a lock's token at most; 7, 8 how many numbers and texts, 9 how many names in all;
--          then the names, as in look-at-job.lua; then one id a job
-- Returns  for each job what look-at-job.lua returns: 1 for its place when it is there, and false when it is not
-- Cost     O(log n) a job of a sorted set; O(n / 1000) for the part of a list, which is short, and O(1) a job
-- Versions all of both libraries

--- include read-job

local place, is_list = KEYS[1], ARGV[1] == "l"
local limits = { longest = tonumber(ARGV[4]), left = tonumber(ARGV[5]), token = tonumber(ARGV[6]) }
local numbers, texts, width = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local FIRST_NAME = 10

local names = {}
for at = FIRST_NAME, FIRST_NAME + width - 1 do table.insert(names, ARGV[at]) end

local listed = {}
if is_list then
  for _, id in ipairs(redis.call("LRANGE", place, ARGV[2], ARGV[3])) do listed[id] = true end
end

local looks = {}
for at = 1, (#KEYS - 1) / 2 do
  local id = ARGV[FIRST_NAME + width + at - 1]
  local score = listed[id]
  if not is_list then score = redis.call("ZSCORE", place, id) end
  looks[at] = score and { 1, score, read_job(KEYS[2 * at], KEYS[2 * at + 1], names, numbers, texts, limits) } or false
end
return looks
