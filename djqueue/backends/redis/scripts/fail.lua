-- keys: body env ready leases own meta failed_body failed_env failed_ready failed_delayed failed_leases failed_own bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names out history history_old results
-- with: holders lanes failing facts history
-- Moves leased entries to the failed queue, and stores a fact and a record for each entry that has one.
-- Arguments: the number of sleeping consumers to wake at most; the number of records in a hash at most; the records, a line for each
-- lease ("" if there are none); the number of arguments for each lease; then id, token, "due envelope", and the fact as facts.lua
-- reads it, of each.
-- Answer: the time, then the numbers of the leases that are not held any more.
local now, step = clock(), tonumber(ARGV[4])
local ids, at, reply = held(5, step, now)
if #ids == 0 then return reply end

check_history(ARGV[3])
check("HLEN", body, env, meta, failed_body, failed_env, failed_own)
check("ZCARD", leases, ready, failed_ready, failed_delayed, failed_leases)
check("LLEN", bell)
if step > 3 then check("ZCARD", results) end
ring(come_back(ids, now), ARGV[1])
finish_lanes()
leave(ids)
local last = count_places(#ids, now)
for i, id in ipairs(ids) do
  local stays = (call("HGET", env, id) or ""):match("^%d+( %d+ %d+ )") or " 0 " .. whole(now) .. " "
  local envelope = place(now, last - #ids + i) .. stays .. ARGV[at[i] + 2]:match("^%S+ (.*)$")
  make_room(id)
  call("HSET", failed_body, id, call("HGET", body, id) or "")
  call("HSET", failed_env, id, envelope)
  call("ZADD", failed_ready, 0, member(id, envelope))
end
for _, hash in ipairs({body, env}) do call("HDEL", hash, unpack(ids)) end
if step > 3 then keep_results(at, 3, now) end
keep_records(ids, at, 5, step, ARGV[3], ARGV[2], now)
call("HDEL", own, unpack(ids))
return reply
