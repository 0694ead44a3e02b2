-- keys: body env ready leases own meta done
-- with: holders
-- args: microseconds for which finished ids are kept ("" for none), how many of them at most, then id, token of each.
local now = clock()
local ids, _, reply = held(3, 2, now)
if #ids == 0 then return reply end

leave(ids)
for _, hash in ipairs({own, body, env}) do call("HDEL", hash, unpack(ids)) end
call("HINCRBY", meta, "done", #ids)
if ARGV[1] ~= "" then
  for _, id in ipairs(ids) do call("ZADD", done, now, id) end
  call("ZREMRANGEBYSCORE", done, "-inf", now - ARGV[1])
  call("ZREMRANGEBYRANK", done, 0, -1 - ARGV[2])
end
return reply
