-- keys: account
-- with: windows budgets
-- args: how many are wanted; limit, span, ways and buffer of the window. A second key is that of a spacing that others
-- share. Gives how many were granted, microseconds until the next may be, why none may now, when it was, and when the grant
-- before was; and the window that holds.
local now = clock()
local budget = account_of(account, KEYS[2], numbers(2, 5), now)
local before, free = budget.log.last, left_of(budget, now)
local granted = math.min(tonumber(ARGV[1]), free)
spend(budget, granted, now)
local _, wait, why = left_of(budget, now)
save(budget)
return {granted, whole(wait), why, whole(now), whole(before), budget.given}
