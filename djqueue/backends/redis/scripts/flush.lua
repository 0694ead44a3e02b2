-- keys: body env ready delayed own meta wait aged open timed line lanes names
-- with: lanes places lines
-- args: limit. Deletes so many of those that wait, from one line; gives how many it deleted and how many still wait.
local line_key = call("ZCARD", ready) > 0 and ready or call("ZCARD", aged) > 0 and aged or delayed
local members = call("ZRANGE", line_key, 0, ARGV[1] - 1)
if #members == 0 then return {0, 0} end
delete(line_key, members, clock())
finish_lanes()
return {#members, call("ZCARD", ready) + call("ZCARD", aged) + call("ZCARD", delayed)}
