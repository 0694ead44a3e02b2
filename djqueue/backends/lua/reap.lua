-- keys: env ready delayed leases own bell meta wait aged open timed line lanes names out
-- with: holders windows gates moves lanes places
-- args: limit, rings. Gives how many were reaped, and microseconds to the next expiry (-1: nothing is leased).
-- The token stays, so a late worker may finish what nobody has taken since; but not in a lane, which goes on.
local now, reaped = clock(), 0
local ids = call("ZRANGEBYSCORE", leases, "-inf", now, "LIMIT", 0, ARGV[1])
if #ids > 0 then
  call("ZREM", leases, unpack(ids))
  come_back(ids, now)
  for i, envelope in ipairs(call("HMGET", env, unpack(ids))) do
    if envelope then
      envelope = add_lost(ids[i], envelope, 1)
      if lane_of(envelope) then call("HDEL", own, ids[i]) end
      stand(ids[i], envelope, 0, now)
      reaped = reaped + 1
    end
  end
  finish_lanes()
  ring(reaped, ARGV[2])
end
return {reaped, until_first(leases, now)}
