--[[
  Entries that wake workers of BullMQ 3 and 4 leave a list that was emptied: there is nothing left to wake them for.

  KEYS     the list, then the fence (parts/fence.lua)
  ARGV     the entries, then the epoch
  Returns  how many went
  Cost     O(n) of the list for each; they stand at its tail, where the search begins
  Versions 3 and 4
]]
--- include fence

local many = 0
for _, entry in ipairs(ARGV) do many = many + redis.call("LREM", KEYS[1], -1, entry) end
return many
