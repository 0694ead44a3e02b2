-- keys: env ready delayed leases own bell meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names out
-- with: holders lanes places
-- Puts entries whose leases ran out back where they waited. Their tokens stay, so a late worker may still finish an
-- entry that was not taken since; but not in a lane, which goes on.
-- Arguments: the number of entries at most; the number of sleeping consumers to wake at most; the moment after which
-- nothing is done.
-- Answer: the number of entries; the microseconds until the next lease runs out (-1: nothing is leased); the ids of
-- entries whose envelopes cannot be read, which stay; the time.
local now, reaped, unread = clock(), {}, {}
local late = now > tonumber(ARGV[3])
local ids = late and {} or call("ZRANGEBYSCORE", leases, "-inf", now, "LIMIT", 0, ARGV[1])
if #ids > 0 then
  local owned, envelopes = call("HMGET", own, unpack(ids)), {}
  for i, envelope in ipairs(call("HMGET", env, unpack(ids))) do
    if parsed(envelope) then
      reaped[#reaped + 1], envelopes[#reaped + 1] = i, envelope
    else
      unread[#unread + 1] = ids[i]
    end
  end
  local back = {}
  for n, i in ipairs(reaped) do back[n] = ids[i] end
  call("ZREM", ready, "") -- a write that takes no memory
  come_back(back, now)
  for n, i in ipairs(reaped) do
    local envelope = has_begun(owned[i]) and add_lost(ids[i], envelopes[n], 1) or envelopes[n]
    enqueue(ids[i], envelope, 0, now)
    if lane_of(envelope) then call("HDEL", own, ids[i]) end
  end
  if #back > 0 then call("ZREM", leases, unpack(back)) end
  finish_lanes()
  ring(#reaped, ARGV[2])
end
local first = call("ZRANGE", leases, 0, 0, "WITHSCORES")[2]
return {#reaped, first and math.max(0, first - now) or -1, unread, now}
