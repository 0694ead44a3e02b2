-- keys: body env ready delayed leases own
-- with: lines
-- args: limit, microseconds of the lease, token and owner as one.
-- Gives now, microseconds until more may come (-1: nothing is known to), how many had lost their body; then id, envelope,
-- data of each.
local limit, now = tonumber(ARGV[1]), clock()
promote(now, limit + 32)
local popped = call("ZPOPMIN", ready, limit)
local again = #popped == 2 * limit and 0 or until_first(delayed, now)
local reply, missing = {now, again, 0}, {}
if #popped == 0 then return reply end

local ids, envelopes, leased, owned = {}, {}, {}, {}
for i = 1, #popped, 2 do ids[#ids + 1] = popped[i]:sub(DIGITS + 1) end
local old, bodies = call("HMGET", env, unpack(ids)), call("HMGET", body, unpack(ids))
for i, id in ipairs(ids) do
  if old[i] and bodies[i] then
    local head, attempts, rest = old[i]:match("^(%d+ %d+ %d+ %-?%d+ )(%d+)(.*)$")
    local envelope, n = head .. attempts + 1 .. rest, #leased
    envelopes[n + 1], envelopes[n + 2] = id, envelope
    leased[n + 1], leased[n + 2] = now + ARGV[2], id
    owned[n + 1], owned[n + 2] = id, ARGV[3]
    n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = id, envelope, bodies[i]
  else
    missing[#missing + 1] = id
  end
end
if #missing > 0 then
  reply[3] = #missing
  for _, hash in ipairs({body, env, own}) do call("HDEL", hash, unpack(missing)) end
end
if #leased > 0 then
  call("HSET", env, unpack(envelopes))
  call("ZADD", leases, unpack(leased))
  call("HSET", own, unpack(owned))
end
return reply
