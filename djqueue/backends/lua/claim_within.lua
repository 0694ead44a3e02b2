-- keys: body env ready delayed leases own wait aged open timed line lanes names out flip meta
-- with: windows gates moves lanes places turns claiming budgets
-- args: limit, how many entries at most, microseconds of the lease, token and owner as one; limit, span, ways and buffer of
-- the window. Two more keys are those of the account and of a spacing that others share. Gives why no more may leave now,
-- and what a claim does.
local now, limit, most = clock(), tonumber(ARGV[1]), tonumber(ARGV[2])
call("HDEL", own, "") -- a write that takes no memory
local budget = account_of(KEYS[17], KEYS[18], numbers(5, 8), now)

local free, wait, why = left_of(budget, now)
if free == 0 then
  save(budget)
  return {why, {now, wait, 0, {}}}
end
local reply, count, units = claim(math.min(limit, free), 0, math.min(most, free), ARGV[3], ARGV[4], now)
spend(budget, count, now)
free, wait, why = left_of(budget, now)
save(budget)
-- More is at hand, and what stops it is the budget.
if reply[2] == 0 and free == 0 and units < limit then
  reply[2] = wait
  return {why, reply}
end
return {"", reply}
