-- keys: body env ready delayed own
-- args: limit. Deletes so many of those that wait, from one line; gives how many it deleted and how many still wait.
local line = call("ZCARD", ready) > 0 and ready or delayed
local names, ids = call("ZRANGE", line, 0, ARGV[1] - 1), {}
if #names == 0 then return {0, 0} end
for i, name in ipairs(names) do ids[i] = name:sub(DIGITS + 1) end
call("ZREM", line, unpack(names))
for _, hash in ipairs({own, body, env}) do call("HDEL", hash, unpack(ids)) end
return {#names, call("ZCARD", ready) + call("ZCARD", delayed)}
