-- keys: leases own
-- with: holders
-- args: id, token of each.
local now = clock()
local ids, _, reply = held(1, 2, now)
call("HDEL", own, "") -- a write that takes no memory
for _, id in ipairs(ids) do
  local owned = call("HGET", own, id)
  if call("ZSCORE", leases, id) then call("HSET", own, id, owned:sub(1, TOKEN) .. "1" .. owned:sub(TOKEN + 2)) end
end
return reply
