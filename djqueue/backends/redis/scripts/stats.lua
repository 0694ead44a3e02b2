-- keys: env ready delayed leases own body aged meta dead_ready dead_delayed
-- with: lines
-- Gives ready, delayed, leased, dead, done, and the age of the oldest that is ready (-1 for none).
local now, since, oldest_ones = clock(), FAR, call("ZRANGE", aged, 0, 0)
local due = call("ZCOUNT", delayed, "-inf", now)
oldest_ones[#oldest_ones + 1] = oldest(1)[1]
for _, name in ipairs(oldest_ones) do since = math.min(since, tonumber(name:sub(1, MOMENT)) or FAR) end
if due > 0 then since = math.min(since, tonumber(call("ZRANGE", delayed, 0, 0, "WITHSCORES")[2])) end
return {
  call("ZCARD", ready) + call("ZCARD", aged) + due,
  call("ZCARD", delayed) - due,
  call("ZCARD", leases),
  call("ZCARD", dead_ready) + call("ZCARD", dead_delayed),
  tonumber(call("HGET", meta, "done") or 0) or 0,
  since < FAR and math.max(0, now - since) or -1,
}
