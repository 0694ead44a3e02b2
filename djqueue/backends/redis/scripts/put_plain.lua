-- keys: body env ready meta bell
-- Puts one entry that is due on arrival, in no lane and without a guard, into a queue that remembers no finished ids.
-- Arguments: id; data; its score in ready; the envelope behind its moments; the number of sleeping consumers to wake at most.
-- Answer: whether it was put, as 1 or 0: it is not if its id is in the queue.
local now = clock()
local stands = place(now, count_places(1, now) - 1)
if call("HEXISTS", env, ARGV[1]) == 1 then return 0 end
check("HLEN", body)
local rings = ARGV[5] ~= "0" and call("LLEN", bell) < tonumber(ARGV[5])
call("ZADD", ready, ARGV[3], stands .. ARGV[1]) -- first, as this key was not checked
call("HSET", body, ARGV[1], ARGV[2])
call("HSET", env, ARGV[1], stands .. " 0 " .. stands:sub(1, MOMENT) .. " " .. ARGV[4])
if rings then call("LPUSH", bell, "1") end
return 1
