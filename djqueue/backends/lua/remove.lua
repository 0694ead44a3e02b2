-- keys: body env ready delayed leases own
-- args: ids. Gives how many were deleted.
local removed = 0
for _, id in ipairs(ARGV) do
  local envelope = call("HGET", env, id)
  if envelope and not call("ZSCORE", leases, id) then
    for _, line in ipairs({ready, delayed}) do call("ZREM", line, member(id, envelope)) end
    for _, hash in ipairs({own, body, env}) do call("HDEL", hash, id) end
    removed = removed + 1
  end
end
return removed
