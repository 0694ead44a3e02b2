-- keys: body env ready delayed leases meta done bell wait aged open timed line lanes names
-- with: guards lanes places putting
-- args: as putting.lua says. A first try: what it does not find in the queue is new.
return put(clock(), is_there, 15)
