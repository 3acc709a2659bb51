-- The field a job's stalls are counted in. When the minor version is not known, the one the job has already.
local function stall_field(traits, job)
  if traits.is_exact then return traits.stall_field end
  for _, field in ipairs({ "stc", "stalledCounter" }) do
    if redis.call("HEXISTS", job, field) == 1 then return field end
  end
  return traits.stall_field
end
