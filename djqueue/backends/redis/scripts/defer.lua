-- keys: env ready leases own wait aged open timed line lanes names out flip meta
-- with: holders lanes places
-- args: microseconds, then id, token, claimed of each. Gives the moment from which on they count, so many microseconds from
-- now; 0 if one of them counts no more.
local now = clock()
call("HDEL", own, "") -- a write that takes no memory
local to, ids = now + tonumber(ARGV[1]), held(2, 3, now)
if #ids < (#ARGV - 1) / 3 then return "0" end
for i, had_left in ipairs(call("HMGET", out, unpack(ids))) do
  if not had_left or not laned(now).defer(had_left, tonumber(ARGV[3 * i + 1]), to) then return "0" end
end
finish_lanes()
return whole(to)
