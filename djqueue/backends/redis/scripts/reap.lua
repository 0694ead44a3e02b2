-- keys: env ready delayed leases own bell meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names out
-- with: holders lanes places losing
-- Puts entries whose leases ran out back where they waited.
-- Arguments: the number of entries at most; the number of sleeping consumers to wake at most; the moment after which
-- nothing is done.
-- Answer: the number of entries; the microseconds until the next lease runs out (-1: nothing is leased); the ids of
-- entries whose envelopes cannot be read, which stay; the time.
local now = clock()
local late = now > tonumber(ARGV[3])
local reaped, unread = lose(late and {} or call("ZRANGEBYSCORE", leases, "-inf", now, "LIMIT", 0, ARGV[1]), now, ARGV[2])
local first = call("ZRANGE", leases, 0, 0, "WITHSCORES")[2]
return {reaped, first and math.max(0, first - now) or -1, unread, now}
