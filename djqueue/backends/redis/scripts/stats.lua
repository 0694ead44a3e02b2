-- keys: env ready delayed leases own body aged meta failed_ready failed_delayed
-- with: lines
-- Counts the entries.
-- Arguments: none.
-- Answer: the numbers of ready, delayed, leased, failed and completed entries; the microseconds for which the oldest
-- ready entry has been ready (-1: there is none).
local now, since, oldest_ones = clock(), FAR, call("ZRANGE", aged, 0, 0)
local due = call("ZCOUNT", delayed, "-inf", now)
oldest_ones[#oldest_ones + 1] = oldest(1)[1]
for _, name in ipairs(oldest_ones) do since = math.min(since, tonumber(name:sub(1, MOMENT)) or FAR) end
if due > 0 then since = math.min(since, tonumber(call("ZRANGE", delayed, 0, 0, "WITHSCORES")[2])) end
return {
  call("ZCARD", ready) + call("ZCARD", aged) + due,
  call("ZCARD", delayed) - due,
  call("ZCARD", leases),
  call("ZCARD", failed_ready) + call("ZCARD", failed_delayed),
  tonumber(call("HGET", meta, "done") or 0) or 0,
  since < FAR and math.max(0, now - since) or -1,
}
