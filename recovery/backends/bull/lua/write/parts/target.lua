-- The list that a job goes to: Bull asks for the flag, because an empty list and none are the same.
local function target_list()
  return call("EXISTS", FLAG) == 1 and PAUSED or WAIT
end
