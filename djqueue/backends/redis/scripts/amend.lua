-- keys: body env leases ready meta bell inbox repeated
-- with: inbox
-- Replaces the body of an entry that waits.
-- Arguments: its id; its body; its new body.
-- Answer: 1, or 0 if the entry does not wait or has another body.
local id = ARGV[1]
take_in(clock())
if call("HGET", body, id) ~= ARGV[2] or call("HEXISTS", env, id) == 0 or call("ZSCORE", leases, id) then return 0 end
call("HDEL", body, id)
call("HSET", body, id, ARGV[3])
return 1
