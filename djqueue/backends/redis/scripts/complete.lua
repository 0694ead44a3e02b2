-- keys: body env ready leases own meta done recent bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names out
-- with: holders facts recent
-- Deletes leased entries that are done, and stores a fact for each entry that has one. The tokens go last, so that a
-- script which failed can run again.
-- Arguments: the three of completing.lua; the number of arguments for each lease; then id, token, and the fact as
-- facts.lua reads it, of each.
-- Answer: the time, then the numbers of the leases that are not held any more.
local now = clock()
local ids, at, reply = held(5, tonumber(ARGV[4]), now)
if #ids == 0 then return reply end

-- with: completing
if tonumber(ARGV[4]) > 2 then keep_facts(at, 2) end
call("HDEL", own, unpack(ids))
return reply
