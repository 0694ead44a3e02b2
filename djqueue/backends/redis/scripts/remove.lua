-- keys: body env ready delayed leases own meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names
-- with: lanes places
-- Deletes entries that wait.
-- Arguments: their ids.
-- Answer: the number of entries that were deleted.
local removed, now = 0, clock()
for _, id in ipairs(ARGV) do
  local envelope = call("HGET", env, id)
  if (envelope or call("HEXISTS", body, id) == 1) and not call("ZSCORE", leases, id) then
    if parsed(envelope) then step_aside(id, envelope, now) end
    for _, hash in ipairs({own, body, env}) do call("HDEL", hash, id) end
    removed = removed + 1
  end
end
finish_lanes()
return removed
