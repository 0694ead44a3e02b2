-- keys: body env ready delayed meta bell failed_body failed_env failed_ready failed_delayed failed_leases failed_own wait aged lanes_ready lanes_scheduled lanes_queued lanes names inbox repeated
-- with: lanes places inbox
-- Moves entries of the failed queue back to the queue.
-- Arguments: the number of sleeping consumers to wake at most; then their ids.
-- Answer: the number of entries that were moved.
local requeued, now = 0, clock()
take_in(now)

local function requeue(id, envelope)
  for _, line_key in ipairs({failed_delayed, failed_ready}) do call("ZREM", line_key, member(id, envelope)) end
  local run_at, priority, rest = envelope:match("^%d+( %d+ )%d+( %-?%d+ )%d+ %d+ %d+(.*)$")
  envelope = place(now, count_places(1, now)) .. run_at .. whole(now) .. priority .. "0 0 0" .. rest
  call("HSET", body, id, call("HGET", failed_body, id) or "")
  call("HSET", env, id, envelope)
  enqueue(id, envelope, 0, now)
  for _, hash in ipairs({failed_own, failed_body, failed_env}) do call("HDEL", hash, id) end
  requeued = requeued + 1
end

for i = 2, #ARGV do
  local id = ARGV[i]
  local envelope = call("HGET", failed_env, id)
  if parsed(envelope) and not call("ZSCORE", failed_leases, id) and call("HEXISTS", env, id) == 0 then requeue(id, envelope) end
end
finish_lanes()
ring(requeued, ARGV[1])
return requeued
