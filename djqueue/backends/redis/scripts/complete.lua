-- keys: body env ready leases own meta done recent bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names out history history_old
-- with: holders facts recent history
-- Deletes leased entries that are done, and stores a fact and a record for each entry that has one. The tokens go last, so that a
-- script which failed can run again.
-- Arguments: the three of completing.lua; the number of records in a hash at most; the number of arguments for each lease; then id,
-- token, the fact as facts.lua reads it, if there are facts, and the record ("" for none), if there are records, of each.
-- Answer: the time, then the numbers of the leases that are not held any more.
local now, step = clock(), tonumber(ARGV[5])
local ids, at, reply = held(6, step, now)
if #ids == 0 then return reply end

-- with: completing
if step >= 4 then keep_facts(at, 2) end
if step % 2 == 1 then keep_records(records(ids, at, step - 1), ARGV[4], now) end
call("HDEL", own, unpack(ids))
return reply
