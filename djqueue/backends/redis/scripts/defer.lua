-- keys: env ready leases own wait aged lanes_ready lanes_scheduled lanes_queued lanes names out flip meta
-- with: holders lanes places
-- Lets the starts of leased entries count from a later moment on, in the windows of their lanes.
-- Arguments: the microseconds until that moment; then id, token and moment of the claim, of each lease.
-- Answer: the moment, or 0 if one of the leases counts no more: then none is changed.
local now = clock()
call("HDEL", own, "") -- a write that takes no memory
local to, ids = now + tonumber(ARGV[1]), held(2, 3, now)
if #ids < (#ARGV - 1) / 3 then return "0" end
for i, had_left in ipairs(call("HMGET", out, unpack(ids))) do
  if not had_left or not laned(now).defer(had_left, tonumber(ARGV[3 * i + 1]), to) then return "0" end
end
finish_lanes()
return whole(to)
