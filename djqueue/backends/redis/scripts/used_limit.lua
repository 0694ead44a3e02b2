-- keys: account
-- with: windows rate_limits
-- Answer: how many of a rate limit are spent in its window now.
local rate_limit, windows = read_account(account)
return rate_limit and windows.used(rate_limit.window, rate_limit.log, clock()) or 0
