-- keys: body env ready delayed own
-- with: lines
-- args: limit. Deletes so many of those that wait, from one line; gives how many it deleted and how many still wait.
local line = call("ZCARD", ready) > 0 and ready or delayed
local members = call("ZRANGE", line, 0, ARGV[1] - 1)
if #members == 0 then return {0, 0} end
delete(line, members)
return {#members, call("ZCARD", ready) + call("ZCARD", delayed)}
