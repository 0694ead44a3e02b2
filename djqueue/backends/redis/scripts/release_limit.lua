-- keys: account
-- with: windows rate_limits
-- Gives back what was taken from a rate limit. A second key is the spacing that it shares with other rate limits.
-- Arguments: the number to give back; the number that was granted; the moment of that grant; the moment of the grant
-- before.
-- Answer: the number that was given back.
local kept, windows = read_account(account)
local count, at = tonumber(ARGV[1]), tonumber(ARGV[3])
if not kept then return 0 end
local is_unused = count == tonumber(ARGV[2]) and kept.log.last == at
windows.returned(kept.window, kept.log, count, at)
if is_unused then kept.log.last = tonumber(ARGV[4]) end
write_account(account, kept)
local ttl = kept_for(kept.window.span)
if KEYS[2] and ARGV[1] == ARGV[2] and call("GET", KEYS[2]) == ARGV[3] then call("SET", KEYS[2], ARGV[4], "PX", ttl) end
return count
