-- Only the scheduler that leads may change anything: no script that was sent under an earlier epoch than the newest one
-- this queue has met. To be included before all else, as nothing may be written or counted before it.
--
-- The last of KEYS is the fence, `unstall:fence:<base>`, and the last of ARGV the epoch. Both are taken off, so that the
-- script counts its own as if they were not there. With the epoch "" nothing is asked, whatever the last key is.

do
  local WEEK = 7 * 24 * 60 * 60 -- in seconds: nothing of ours stays for ever
  local fence, epoch = table.remove(KEYS), tonumber(table.remove(ARGV))
  if epoch then
    local met = redis.call("GET", fence)
    if met and not tonumber(met) then return redis.error_reply("WRONGTYPE " .. fence .. " holds something else") end
    if met and tonumber(met) > epoch then return redis.error_reply("FENCED " .. met) end
    redis.call("SET", fence, string.format("%.0f", epoch), "EX", WEEK)
  end
end
