-- keys: account
-- with: windows budgets
-- args: limit, span, ways and buffer of the window that holds from now on for all who use the budget.
local kept, windows = read_account(account)
local given = numbers(1, 4)
local log = kept and windows.adopt(windows.window(unpack(given)), kept.log) or windows.log()
write_account(account, {given = given, used = clock(), log = log, is_fixed = true})
