-- keys: account
-- with: windows rate_limits
-- Sets the window of a rate limit, for all its users.
-- Arguments: limit, span, ways and buffer of the window.
-- Answer: nothing.
local kept, windows = read_account(account)
local given = numbers(1, 4)
local log = kept and windows.adopt(windows.window(unpack(given)), kept.log) or windows.log()
write_account(account, {given = given, used = clock(), log = log, is_fixed = true})
