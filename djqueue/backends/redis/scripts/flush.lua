-- keys: body env ready delayed own meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names
-- with: lanes places lines
-- Deletes entries that wait, of one line.
-- Arguments: the number of entries at most.
-- Answer: the number of entries that were deleted, and the number that still wait.
local line_key = call("ZCARD", ready) > 0 and ready or call("ZCARD", aged) > 0 and aged or delayed
local members = call("ZRANGE", line_key, 0, ARGV[1] - 1)
if #members == 0 then return {0, 0} end
if line_key == aged then
  local ids, now = {}, clock()
  for i, name in ipairs(members) do ids[i] = name:sub(DIGITS + 1) end
  for i, envelope in ipairs(call("HMGET", env, unpack(ids))) do
    if parsed(envelope) then laned(now).leave(ids[i], envelope) end
  end
end
delete(line_key, members)
finish_lanes()
return {#members, call("ZCARD", ready) + call("ZCARD", aged) + call("ZCARD", delayed)}
