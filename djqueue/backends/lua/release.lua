-- keys: env ready delayed leases own bell
-- with: holders
-- args: rings, then id, token, "due envelope" of each.
local now = clock()
local ids, at, reply = held(2, 3, now)
if #ids == 0 then return reply end

leave(ids)
call("HDEL", own, unpack(ids))
for i, id in ipairs(ids) do
  local due, rest = ARGV[at[i] + 2]:match("^(%S+) (.*)$")
  local stays, created = call("HGET", env, id):match("^(%d+) %d+ (%d+)")
  local again = moment(due, now)
  local envelope = stays .. " " .. whole(again) .. " " .. created .. " " .. rest
  call("HSET", env, id, envelope)
  stand(id, envelope, again, now)
end
ring(#ids, ARGV[1])
return reply
