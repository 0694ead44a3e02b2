-- keys: body env ready leases own meta done recent bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names out
-- with: holders facts recent
-- Deletes leased entries that are done, and stores a fact for each entry that has one. The tokens go last, so that a
-- script which failed can run again.
-- Arguments: the number of sleeping consumers to wake at most; the microseconds for which finished ids are kept ("" for
-- none); the number of ids kept at most; the number of arguments for each lease; then id, token, and the fact as
-- facts.lua reads it, of each.
-- Answer: the time, then the numbers of the leases that are not held any more.
local now = clock()
local ids, at, reply = held(5, tonumber(ARGV[4]), now)
if #ids == 0 then return reply end

leave(ids)
if call("EXISTS", out) == 1 then
  -- with: lanes
  ring(come_back(ids, now), ARGV[1])
  finish_lanes()
end
for _, hash in ipairs({body, env}) do call("HDEL", hash, unpack(ids)) end
remember(ids, count_up("done", #ids, 0), now)
if ARGV[2] ~= "" then
  local finished = {}
  for i, id in ipairs(ids) do finished[2 * i - 1], finished[2 * i] = now, id end
  call("ZADD", done, unpack(finished))
  call("ZREMRANGEBYSCORE", done, "-inf", now - ARGV[2])
  call("ZREMRANGEBYRANK", done, 0, -1 - ARGV[3])
end
if tonumber(ARGV[4]) > 2 then keep_facts(at, 2) end
call("HDEL", own, unpack(ids))
return reply
