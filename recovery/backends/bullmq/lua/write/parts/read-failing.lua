-- The jobs that are to fail, from ARGV[first] on, a block each: id; processedOn, attempts, starts, stalls as they were
-- seen; the key of its parent; its deduplication id; its stack traces, JSON; its limit of attempts; the job that follows
-- it (options or "", delay, priority, push, time to live of its key, deduplication id, its parent's books); keep or drop, and of older ones
-- how many and how old (s); how many parents hear of it, and for each option, base, id, key, deduplication id.
local function read_failing(first)
  local at = first - 1

  local function read(many)
    at = at + many
    return unpack(ARGV, at - many + 1, at)
  end

  local function read_job()
    local job = { id = read(1), seen = { read(4) }, parents = {} }
    job.parent, job.dedup, job.traces, job.limit = read(4)
    local options, delay, priority, push, ttl, dedup, books = read(7)
    job.next = { options = options, delay = tonumber(delay), priority = tonumber(priority), push = push, ttl = ttl }
    job.next.dedup, job.next.books = dedup, books
    local keep, count, age, many = read(4)
    job.is_kept, job.keep = keep == "keep", { count = tonumber(count), age = tonumber(age) }
    for _ = 1, tonumber(many) do
      local option, base, id, key, own = read(5)
      table.insert(job.parents, { option = option, base = base, id = id, key = key, dedup = own })
    end
    return job
  end

  local jobs = {}
  while at < #ARGV do table.insert(jobs, read_job()) end
  return jobs
end
