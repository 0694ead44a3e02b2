-- keys: body env ready delayed leases own wait aged lanes_ready lanes_scheduled lanes_queued lanes names out flip meta done bell inbox repeated
-- with: windows rate_limits inbox
-- Leases entries to a worker, and takes as many from a rate limit. Two more keys are the account of the rate limit, and the
-- spacing that it shares with other rate limits.
-- Arguments: the number of units of work at most; the number of entries at most; the microseconds of the lease; its
-- token; 1 if the entries begin with the claim, else 0; its owner; the microseconds for which finished ids are refused
-- ("" for none); limit, span, ways and buffer of the window.
-- Answer: see claiming.lua.
local now, limit, ahead, most = clock(), tonumber(ARGV[1]), 0, tonumber(ARGV[2])
local span, token, begin, owner, remember = unpack(ARGV, 3)
call("HDEL", own, "") -- a write that takes no memory
local rate_limit = account_of(KEYS[21], KEYS[22], numbers(8, 11), now)

local free, pause, why = left_of(rate_limit, now)
if free == 0 then
  save(rate_limit)
  return {now, pause, why, {}, {}, "", {}}
end
local wanted = limit
limit, most = math.min(limit, free), math.min(most, free)
-- with: claiming
spend(rate_limit, count, now)
free, pause, why = left_of(rate_limit, now)
save(rate_limit)
-- More is at hand, and the rate limit stops it.
if reply[2] == 0 and free == 0 and units < wanted then reply[2], reply[3] = pause, why end
return reply
