-- keys: env ready delayed leases own bell meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names out
-- with: holders lanes places
-- Gives back the entries of claims whose answers were lost, as if they had not been claimed.
-- Arguments: the number of sleeping consumers to wake at most; a cursor; the number of holders to look at; then the
-- tokens of those claims.
-- Answer: the next cursor ("0": that was all).
local now, ids, envelopes, tokens = clock(), {}, {}, {}
for i = 4, #ARGV do tokens[ARGV[i]] = true end
local cursor, found = unpack(call("HSCAN", own, ARGV[2], "COUNT", ARGV[3]))
for i = 1, #found, 2 do
  local id = found[i]
  if tokens[found[i + 1]:sub(1, TOKEN)] and call("ZSCORE", leases, id) then
    local head, attempts, rest = parsed(call("HGET", env, id))
    if head then
      ids[#ids + 1] = id
      envelopes[#ids] = head .. whole(math.max(0, attempts - 1)) .. rest
    end
  end
end
if #ids == 0 then return cursor end

call("ZREM", ready, "") -- a write that takes no memory
come_back(ids, now)
for i, id in ipairs(ids) do
  call("HSET", env, id, envelopes[i])
  enqueue(id, envelopes[i], 0, now)
end
call("ZREM", leases, unpack(ids))
call("HDEL", own, unpack(ids))
finish_lanes()
ring(#ids, ARGV[1])
return cursor
