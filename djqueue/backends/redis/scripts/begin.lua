-- keys: leases own
-- with: holders
-- Notes that the starts of leased entries have begun.
-- Arguments: id and token of each lease.
-- Answer: the time, then the numbers of the leases that are not held any more.
local now = clock()
local ids, at, reply = held(1, 2, now)
call("HDEL", own, "") -- a write that takes no memory
for n, id in ipairs(ids) do
  local until_, owned = call("ZSCORE", leases, id), call("HGET", own, id)
  if until_ and tonumber(until_) > now then
    call("HSET", own, id, owned:sub(1, TOKEN) .. "1" .. owned:sub(TOKEN + 2))
  else
    reply[#reply + 1] = (at[n] + 1) / 2
  end
end
return reply
