-- keys: env ready delayed leases own body aged meta failed_ready failed_delayed inbox
-- with: lines
-- Counts the entries, those in the inbox as ready: it takes none in, as it may be asked of a replica.
-- Arguments: none.
-- Answer: the numbers of ready, delayed, leased, failed and completed entries; the microseconds for which the oldest
-- ready entry has been ready (-1: there is none).
local now, since, oldest_ones = clock(), FAR, call("ZRANGE", aged, 0, 0)
local arrivals = call("XLEN", inbox)
local due = call("ZCOUNT", delayed, "-inf", now)
oldest_ones[#oldest_ones + 1] = oldest(1)[1]
for _, name in ipairs(oldest_ones) do since = math.min(since, tonumber(name:sub(1, MOMENT)) or FAR) end
if arrivals > 0 then since = math.min(since, call("XRANGE", inbox, "-", "+", "COUNT", 1)[1][1]:match("^%d+") * 1000) end
if due > 0 then since = math.min(since, tonumber(call("ZRANGE", delayed, 0, 0, "WITHSCORES")[2])) end
return {
  arrivals + call("ZCARD", ready) + call("ZCARD", aged) + due,
  call("ZCARD", delayed) - due,
  call("ZCARD", leases),
  call("ZCARD", failed_ready) + call("ZCARD", failed_delayed),
  tonumber(call("HGET", meta, "done") or 0) or 0,
  since < FAR and math.max(0, now - since) or -1,
}
