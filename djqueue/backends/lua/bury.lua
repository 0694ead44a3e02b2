-- keys: body env ready leases own meta dead_body dead_env dead_ready dead_delayed dead_leases dead_own bell wait aged open timed line lanes names out
-- with: holders windows gates moves lanes
-- args: rings, then id, token, "due envelope" of each.
local now = clock()
local ids, at, reply = held(2, 3, now)
if #ids == 0 then return reply end

-- An entry of that id that is dead already gives way.
local function make_room(id)
  local envelope = call("HGET", dead_env, id)
  if not envelope then return end
  for _, line_key in ipairs({dead_ready, dead_delayed}) do call("ZREM", line_key, member(id, envelope)) end
  call("ZREM", dead_leases, id)
  call("HDEL", dead_own, id)
end

leave(ids)
ring(come_back(ids, now), ARGV[1])
finish_lanes()
local last = call("HINCRBY", meta, "seq", #ids)
for i, id in ipairs(ids) do
  local stays = call("HGET", env, id):match("^%d+( %d+ %d+ )")
  local envelope = place(now, last - #ids + i) .. stays .. ARGV[at[i] + 2]:match("^%S+ (.*)$")
  make_room(id)
  call("HSET", dead_body, id, call("HGET", body, id))
  call("HSET", dead_env, id, envelope)
  call("ZADD", dead_ready, 0, member(id, envelope))
end
for _, hash in ipairs({own, body, env}) do call("HDEL", hash, unpack(ids)) end
return reply
