-- keys: body env ready delayed leases own wait aged open timed line lanes names out flip meta done
-- args: limit, how many of it would wait for a worker, how many entries at most, microseconds of the lease, token, 1 or 0
-- for: it begins with the claim, owner, microseconds for which finished ids are refused ("" for none). Gives what claiming.lua
-- says.
local now, limit, ahead, most = clock(), tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local span, token, begin, owner, remember = unpack(ARGV, 4)
-- with: claiming
return reply
