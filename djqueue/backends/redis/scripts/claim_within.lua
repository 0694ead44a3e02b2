-- keys: body env ready delayed leases own wait aged open timed line lanes names out flip meta done
-- with: lanes places claiming windows budgets
-- args: limit, how many entries at most, microseconds of the lease, token, 1 or 0 for: it begins with the claim, owner,
-- microseconds for which finished ids are refused ("" for none); limit, span, ways and buffer of the window. Two more keys are
-- those of the account and of a spacing that others share. Gives why no more may leave now, and what a claim does.
local now, limit, most = clock(), tonumber(ARGV[1]), tonumber(ARGV[2])
call("HDEL", own, "") -- a write that takes no memory
local budget = account_of(KEYS[18], KEYS[19], numbers(8, 11), now)

local free, wait, why = left_of(budget, now)
if free == 0 then
  save(budget)
  return {why, {now, wait, {}, {}, ""}}
end
local most_ids = math.min(most, free)
local reply, count, units = claim(math.min(limit, free), 0, most_ids, ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], now)
spend(budget, count, now)
free, wait, why = left_of(budget, now)
save(budget)
-- More is at hand, and what stops it is the budget.
if reply[2] == 0 and free == 0 and units < limit then
  reply[2] = wait
  return {why, reply}
end
return {"", reply}
