-- keys: account
-- with: windows budgets
-- Takes from a budget. A second key is the spacing that it shares with other budgets.
-- Arguments: the number that is wanted; limit, span, ways and buffer of the window.
-- Answer: the number that was granted; the microseconds until the next grant; why none can be now; the moment of this
-- grant; the moment of the grant before; the window that holds.
local now = clock()
local budget = account_of(account, KEYS[2], numbers(2, 5), now)
local before, free = budget.log.last, left_of(budget, now)
local granted = math.min(tonumber(ARGV[1]), free)
spend(budget, granted, now)
local _, wait, why = left_of(budget, now)
save(budget)
return {granted, whole(wait), why, whole(now), whole(before), budget.given}
