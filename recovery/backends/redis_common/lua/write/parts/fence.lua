-- Only the scheduler that leads may change anything: no script that was sent under an earlier epoch than the newest one
-- that this queue has met of the same installation, and none while another installation holds the queue. To be included
-- before all else, as nothing may be written or counted before it.
--
-- The last two of KEYS are the fence: `unstall:fence:<base>`, the installation that holds the queue, for as long as the
-- last of its scripts said; and `unstall:fence:<installation>:<base>`, its newest epoch, for a week. The last of ARGV is
-- "epoch installation ms". All three are taken off, so that the script counts its own as if they were not there. With ""
-- nothing is asked, whatever the last keys are.

do
  local WEEK = 7 * 24 * 60 * 60 -- in seconds: nothing of ours stays for ever
  local newest, fence, given = table.remove(KEYS), table.remove(KEYS), table.remove(ARGV)
  if given ~= "" then
    local epoch, installation, life = string.match(given, "^(%d+) (%S+) (%d+)$")
    local met, holder = redis.call("GET", newest), redis.call("GET", fence)
    if met and not tonumber(met) then return redis.error_reply("WRONGTYPE " .. newest .. " holds something else") end
    if holder and not string.match(holder, "^[%x-]+$") then
      return redis.error_reply("WRONGTYPE " .. fence .. " holds something else")
    end
    if met and tonumber(met) > tonumber(epoch) then return redis.error_reply("FENCED " .. met) end
    -- A short number is an epoch of a version that knew one installation only.
    if holder and holder ~= installation and (#holder > 12 or not tonumber(holder)) then
      return redis.error_reply("FENCED " .. holder)
    end
    redis.call("SET", newest, epoch, "EX", WEEK)
    redis.call("SET", fence, installation, "PX", life)
  end
end
