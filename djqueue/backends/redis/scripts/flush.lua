-- keys: body env ready delayed own meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names inbox
-- with: lanes places lines
-- Deletes entries that wait: first those in the inbox, then those of one line.
-- Arguments: the number of entries at most, next to the inbox; 1 to delete the inbox, which only the first step may.
-- Answer: the number of entries that were deleted, and the number that still wait.
local gone = ARGV[2] == "1" and call("XLEN", inbox) or 0
if gone > 0 then call("DEL", inbox) end
local line_key = call("ZCARD", ready) > 0 and ready or call("ZCARD", aged) > 0 and aged or delayed
local members = call("ZRANGE", line_key, 0, ARGV[1] - 1)
if #members == 0 then return {gone, 0} end
if line_key == aged then
  local ids, now = {}, clock()
  for i, name in ipairs(members) do ids[i] = name:sub(DIGITS + 1) end
  for i, envelope in ipairs(call("HMGET", env, unpack(ids))) do
    if parsed(envelope) then laned(now).leave(ids[i], envelope) end
  end
end
delete(line_key, members)
finish_lanes()
return {gone + #members, call("ZCARD", ready) + call("ZCARD", aged) + call("ZCARD", delayed)}
