-- keys: body env ready leases own meta done recent bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names out history history_old results
-- with: holders facts recent history
-- Deletes leased entries that are done, and stores a fact and a record for each entry that has one. The tokens go last, so that a
-- script which failed can run again.
-- Arguments: the three of completing.lua; the number of records in a hash at most; the records, a line for each lease ("" if there
-- are none); the number of arguments for each lease; then id, token, and the fact as facts.lua reads it, of each.
-- Answer: the time, then the numbers of the leases that are not held any more.
local now, step = clock(), tonumber(ARGV[6])
local ids, at, reply = held(7, step, now)
if #ids == 0 then return reply end

check_history(ARGV[5])
if step > 2 then check("ZCARD", results) end
-- with: completing
if step > 2 then keep_results(at, 2, now) end
keep_records(ids, at, 7, step, ARGV[5], ARGV[4], now)
call("HDEL", own, unpack(ids))
return reply
