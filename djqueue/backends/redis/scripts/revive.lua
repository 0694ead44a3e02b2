-- keys: body env ready delayed meta bell dead_body dead_env dead_ready dead_delayed dead_leases dead_own wait aged open timed line lanes names
-- with: lanes places
-- Moves entries of the error queue back to the queue.
-- Arguments: the number of sleeping consumers to wake at most; then their ids.
-- Answer: the number of entries that were moved.
local revived, now = 0, clock()

local function revive(id, envelope)
  for _, line_key in ipairs({dead_delayed, dead_ready}) do call("ZREM", line_key, member(id, envelope)) end
  local run_at, priority, rest = envelope:match("^%d+( %d+ )%d+( %-?%d+ )%d+ %d+ %d+(.*)$")
  envelope = place(now, count_places(1, now)) .. run_at .. whole(now) .. priority .. "0 0 0" .. rest
  call("HSET", body, id, call("HGET", dead_body, id) or "")
  call("HSET", env, id, envelope)
  stand(id, envelope, 0, now)
  for _, hash in ipairs({dead_own, dead_body, dead_env}) do call("HDEL", hash, id) end
  revived = revived + 1
end

for i = 2, #ARGV do
  local id = ARGV[i]
  local envelope = call("HGET", dead_env, id)
  if parsed(envelope) and not call("ZSCORE", dead_leases, id) and call("HEXISTS", env, id) == 0 then revive(id, envelope) end
end
finish_lanes()
ring(revived, ARGV[1])
return revived
