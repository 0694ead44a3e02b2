-- keys: body env ready delayed leases own wait aged open timed line lanes names out flip meta done
-- with: windows budgets
-- Leases entries to a worker, and takes as many from a budget. Two more keys are the account of the budget, and the
-- spacing that it shares with other budgets.
-- Arguments: the number of units of work at most; the number of entries at most; the microseconds of the lease; its
-- token; 1 if the entries begin with the claim, else 0; its owner; the microseconds for which finished ids are refused
-- ("" for none); limit, span, ways and buffer of the window.
-- Answer: as claiming.lua says.
local now, limit, ahead, most = clock(), tonumber(ARGV[1]), 0, tonumber(ARGV[2])
local span, token, begin, owner, remember = unpack(ARGV, 3)
call("HDEL", own, "") -- a write that takes no memory
local budget = account_of(KEYS[18], KEYS[19], numbers(8, 11), now)

local free, pause, why = left_of(budget, now)
if free == 0 then
  save(budget)
  return {now, pause, why, {}, {}, ""}
end
local wanted = limit
limit, most = math.min(limit, free), math.min(most, free)
-- with: claiming
spend(budget, count, now)
free, pause, why = left_of(budget, now)
save(budget)
-- More is at hand, and the budget stops it.
if reply[2] == 0 and free == 0 and units < wanted then reply[2], reply[3] = pause, why end
return reply
