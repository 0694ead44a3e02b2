-- keys: body env ready leases own meta failed_body failed_env failed_ready failed_delayed failed_leases failed_own bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names out
-- with: lanes failing
-- Moves leased entries that cannot be run to the failed queue. In a failed queue they stay, behind all others.
-- Arguments: the number of sleeping consumers to wake at most; the token of their leases ("" for leases that ran out);
-- then id and reason of each entry.
-- Answer: the ids of the entries that were moved.
local now, moved, gone = clock(), {}, {}
call("HDEL", own, "") -- a write that takes no memory

local function is_still(id)
  local expires = call("ZSCORE", leases, id)
  if not expires then return false end
  if ARGV[2] ~= "" then return (call("HGET", own, id) or ""):sub(1, TOKEN) == ARGV[2] end
  return tonumber(expires) <= now and not parsed(call("HGET", env, id))
end

for i = 3, #ARGV, 2 do
  local id = ARGV[i]
  if is_still(id) then
    gone[#gone + 1] = id
    if call("HEXISTS", body, id) == 1 or call("HEXISTS", env, id) == 1 then
      fail_unread(id, ARGV[i + 1], now)
      moved[#moved + 1] = id
    end
  end
end
if #gone > 0 then
  call("ZREM", leases, unpack(gone))
  call("HDEL", own, unpack(gone))
end
ring(come_back(gone, now), ARGV[1])
finish_lanes()
return moved
