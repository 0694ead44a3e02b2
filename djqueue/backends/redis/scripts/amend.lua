-- keys: body env leases
-- args: id, its body, its new body. Gives 1 if the entry waits and had that body, else 0.
local id = ARGV[1]
if call("HGET", body, id) ~= ARGV[2] or call("HEXISTS", env, id) == 0 or call("ZSCORE", leases, id) then return 0 end
call("HDEL", body, id)
call("HSET", body, id, ARGV[3])
return 1
