-- keys: env ready leases own
-- with: holders
-- Prolongs leases.
-- Arguments: the microseconds; then id and token of each lease.
-- Answer: the time, then the numbers of the leases that are not held any more.
local now = clock()
local ids, _, reply = held(2, 2, now)
call("ZREM", leases, "") -- a write that takes no memory
for _, id in ipairs(leave(ids)) do
  -- Its holder lives, so that start was not lost.
  if has_begun(call("HGET", own, id)) then add_lost(id, call("HGET", env, id), -1) end
end
local longer = {}
for i, id in ipairs(ids) do longer[2 * i - 1], longer[2 * i] = now + ARGV[1], id end
if #ids > 0 then call("ZADD", leases, unpack(longer)) end
return reply
