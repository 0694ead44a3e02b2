-- keys: body env ready leases own meta done bell wait aged open timed line lanes names out
-- with: holders windows gates moves lanes
-- args: rings, microseconds for which finished ids are kept ("" for none), how many of them at most, then id, token of each.
local now = clock()
local ids, _, reply = held(4, 2, now)
if #ids == 0 then return reply end

leave(ids)
for _, hash in ipairs({own, body, env}) do call("HDEL", hash, unpack(ids)) end
ring(come_back(ids, now), ARGV[1])
finish_lanes()
call("HINCRBY", meta, "done", #ids)
if ARGV[2] ~= "" then
  for _, id in ipairs(ids) do call("ZADD", done, now, id) end
  call("ZREMRANGEBYSCORE", done, "-inf", now - ARGV[2])
  call("ZREMRANGEBYRANK", done, 0, -1 - ARGV[3])
end
return reply
