-- keys: ready delayed leases meta dead_ready dead_delayed
-- Gives ready, delayed, leased, dead, done, and the age of the oldest that is ready (-1 for none).
-- The oldest of each priority stands first; the first 32 priorities are looked at.
local now, above, oldest = clock(), "-inf", FAR
local due = call("ZCOUNT", delayed, "-inf", now)
for _ = 1, 32 do
  local first = call("ZRANGEBYSCORE", ready, above, "+inf", "WITHSCORES", "LIMIT", 0, 1)
  if #first == 0 then break end
  oldest, above = math.min(oldest, tonumber(first[1]:sub(1, MOMENT))), "(" .. first[2]
end
if due > 0 then oldest = math.min(oldest, tonumber(call("ZRANGE", delayed, 0, 0, "WITHSCORES")[2])) end
return {
  call("ZCARD", ready) + due,
  call("ZCARD", delayed) - due,
  call("ZCARD", leases),
  call("ZCARD", dead_ready) + call("ZCARD", dead_delayed),
  tonumber(call("HGET", meta, "done") or 0),
  oldest < FAR and math.max(0, now - oldest) or -1,
}
