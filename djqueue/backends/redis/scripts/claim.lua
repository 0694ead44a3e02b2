-- keys: body env ready delayed leases own wait aged lanes_ready lanes_scheduled lanes_queued lanes names out flip meta done bell inbox repeated
-- with: inbox
-- Leases entries to a worker.
-- Arguments: the number of units of work at most; the number of these that would wait for a worker; the number of
-- entries at most; the microseconds of the lease; its token; 1 if the entries begin with the claim, else 0; its owner;
-- the microseconds for which finished ids are refused ("" for none).
-- Answer: see claiming.lua.
local now, limit, ahead, most = clock(), tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local span, token, begin, owner, remember = unpack(ARGV, 4)
-- with: claiming
return reply
