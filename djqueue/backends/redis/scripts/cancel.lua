-- keys: body env ready delayed leases own meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names history history_old results bell inbox repeated
-- with: lanes places facts history inbox
-- Deletes an entry that waits, and stores the fact and the record of its end, if there are any.
-- Arguments: its id; the number of records in a hash at most; the record, or ""; the fact as facts.lua reads it.
-- Answer: 1 if it waited, or 0.
local id, now = ARGV[1], clock()
take_in(now)
check_history(ARGV[3])
if not remove_waiting(id, now) then return 0 end
finish_lanes()
keep_results({4}, 0, now)
keep_records({id}, {1}, 1, 1, ARGV[3], ARGV[2], now)
return 1
