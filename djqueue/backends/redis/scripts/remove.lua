-- keys: body env ready delayed leases own meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names bell inbox repeated
-- with: lanes places inbox
-- Deletes entries that wait.
-- Arguments: their ids.
-- Answer: the number of entries that were deleted.
local removed, now = 0, clock()
take_in(now)
for _, id in ipairs(ARGV) do
  if remove_waiting(id, now) then removed = removed + 1 end
end
finish_lanes()
return removed
