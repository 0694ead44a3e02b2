-- keys: account
-- with: windows rate_limits
-- Takes from a rate limit. A second key is the spacing that it shares with other rate limits.
-- Arguments: the number that is wanted; limit, span, ways and buffer of the window.
-- Answer: the number that was granted; the microseconds until the next grant; why none can be now; the moment of this
-- grant; the moment of the grant before; the window that holds.
local now = clock()
local rate_limit = account_of(account, KEYS[2], numbers(2, 5), now)
local before, free = rate_limit.log.last, left_of(rate_limit, now)
local granted = math.min(tonumber(ARGV[1]), free)
spend(rate_limit, granted, now)
local _, wait, why = left_of(rate_limit, now)
save(rate_limit)
return {granted, whole(wait), why, whole(now), whole(before), rate_limit.given}
