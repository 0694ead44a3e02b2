-- keys: body env ready delayed leases meta done bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names inbox repeated
-- with: guards lanes places inbox putting
-- Puts entries of which some are in lanes or have guards.
-- Arguments: see putting.lua.
-- Answer: see putting.lua. An entry that is not in the queue is new.
return put(clock(), is_there, 17)
