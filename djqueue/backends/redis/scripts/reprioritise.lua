-- keys: env ready delayed leases meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names bell body inbox repeated
-- with: lanes places inbox
-- Gives entries that wait another priority.
-- Arguments: the priority; then their ids.
-- Answer: the number of entries that have it now.
local changed, now = 0, clock()
take_in(now)

local function change(id, envelope)
  local due = call("ZSCORE", delayed, member(id, envelope))
  step_aside(id, envelope, now)
  envelope = envelope:gsub("^(%d+ %d+ %d+ )%-?%d+", "%1" .. ARGV[1], 1)
  call("HSET", env, id, envelope)
  enqueue(id, envelope, tonumber(due or 0), now)
  changed = changed + 1
end

for i = 2, #ARGV do
  local envelope = call("HGET", env, ARGV[i])
  if parsed(envelope) and not call("ZSCORE", leases, ARGV[i]) then change(ARGV[i], envelope) end
end
finish_lanes()
return changed
