-- Whoever begins to lead says so to a queue: from now on no script of an earlier epoch, or of another installation,
-- changes anything in it.
--
-- KEYS     the fence (parts/fence.lua)
-- ARGV     the epoch, the installation and for how long it holds (parts/fence.lua)
-- Returns  done
-- Cost     O(1)
-- Versions all of both libraries

--- include fence

return "done"
