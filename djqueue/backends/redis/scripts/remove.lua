-- keys: body env ready delayed leases own meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names
-- with: lanes places
-- Deletes entries that wait.
-- Arguments: their ids.
-- Answer: the number of entries that were deleted.
local removed, now = 0, clock()
for _, id in ipairs(ARGV) do
  if remove_waiting(id, now) then removed = removed + 1 end
end
finish_lanes()
return removed
