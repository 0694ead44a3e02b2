-- keys: account
-- with: windows budgets
-- args: how many go back, of how many, when they were granted, when the grant before was. A second key is that of a spacing
-- that others share.
local kept, count, at = call("GET", account), tonumber(ARGV[1]), tonumber(ARGV[3])
if not kept then return 0 end
local limit, span, ways, buffer, used, log = cmsgpack.unpack(kept)
local windows = window_rules()
local window, is_unused = windows.window(limit, span, ways, buffer), count == tonumber(ARGV[2]) and log.last == at
windows.refund(window, log, count, at)
if is_unused then log.last = tonumber(ARGV[4]) end
local ttl = kept_for(span)
call("SET", account, cmsgpack.pack(limit, span, ways, buffer, used, log), "PX", ttl)
if KEYS[2] and ARGV[1] == ARGV[2] and call("GET", KEYS[2]) == ARGV[3] then call("SET", KEYS[2], ARGV[4], "PX", ttl) end
return count
