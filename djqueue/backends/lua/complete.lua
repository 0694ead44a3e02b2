-- keys: body env ready leases own meta done recent bell wait aged open timed line lanes names out
-- with: holders windows gates moves lanes facts
-- args: rings, microseconds for which finished ids are kept ("" for none), how many of them at most, how many args there are of
-- each; then id, token, and what facts.lua says, of each. Their tokens go last, so that it can be done again.
local now = clock()
local RECENT_FOR, RECENT_MOST, TRIM_EVERY = 60000000, 100000, 100

-- recent has the ids of what was completed within a minute, in the order of the completions: how many there ever were (16
-- digits), when it was (16), ids. Only a put that is repeated reads it, so it is a log and no index.
local function remember_recent(ids, count, now)
  call("RPUSH", recent, string.format("%016.0f%016.0f", count, now) .. cmsgpack.pack(ids))
  call("PEXPIRE", recent, RECENT_FOR / 1000)
  if math.floor(count / TRIM_EVERY) == math.floor((count - #ids) / TRIM_EVERY) then return end
  local first = call("LINDEX", recent, 0)
  while first and (now - first:sub(17, 32) > RECENT_FOR or count - first:sub(1, 16) >= RECENT_MOST) do
    call("LPOP", recent)
    first = call("LINDEX", recent, 0)
  end
end

local ids, at, reply = held(5, tonumber(ARGV[4]), now)
if #ids == 0 then return reply end

leave(ids)
for _, hash in ipairs({body, env}) do call("HDEL", hash, unpack(ids)) end
ring(come_back(ids, now), ARGV[1])
finish_lanes()
remember_recent(ids, count_up("done", #ids, 0), now)
if ARGV[2] ~= "" then
  local finished = {}
  for i, id in ipairs(ids) do finished[2 * i - 1], finished[2 * i] = now, id end
  call("ZADD", done, unpack(finished))
  call("ZREMRANGEBYSCORE", done, "-inf", now - ARGV[2])
  call("ZREMRANGEBYRANK", done, 0, -1 - ARGV[3])
end
keep_facts(at, 2)
call("HDEL", own, unpack(ids))
return reply
