-- keys: env ready leases bell
-- with: holders lines
-- args: limit, rings. Gives how many were reaped, and microseconds to the next expiry (-1: nothing is leased).
-- The token stays: a late worker may finish what nobody has taken since.
local now, reaped = clock(), 0
local ids = call("ZRANGEBYSCORE", leases, "-inf", now, "LIMIT", 0, ARGV[1])
if #ids > 0 then
  call("ZREM", leases, unpack(ids))
  for i, envelope in ipairs(call("HMGET", env, unpack(ids))) do
    if envelope then
      envelope = add_lost(ids[i], envelope, 1)
      call("ZADD", ready, score(envelope), member(ids[i], envelope))
      reaped = reaped + 1
    end
  end
  ring(reaped, ARGV[2])
end
return {reaped, until_first(leases, now)}
