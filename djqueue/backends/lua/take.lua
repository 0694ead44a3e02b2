-- keys: account
-- with: windows budgets
-- args: how many are wanted; limit, span, ways and buffer of the window. A second key is that of a spacing that others
-- share. Gives how many were granted, microseconds until the next may be, why none may now, when it was, and when the grant
-- before was; or "different" and the window of the others.
local now = clock()
local budget, theirs = account_of(account, KEYS[2], numbers(2, 5), now)
if not budget then return theirs end
local before, free = budget.log.last, left_of(budget, now)
local granted = math.min(tonumber(ARGV[1]), free)
spend(budget, granted, now)
local _, wait, why = left_of(budget, now)
save(budget, now)
return {granted, whole(wait), why, whole(now), whole(before)}
