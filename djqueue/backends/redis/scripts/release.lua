-- keys: env ready delayed leases own bell meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names out
-- with: holders lanes places
-- Gives leased entries back, each with a new envelope.
-- Arguments: the number of sleeping consumers to wake at most; then id, token and "due envelope" of each. A word
-- "order", "lane" or "pause" before the due moment means that the lane of the entry waits with it.
-- Answer: the time, then the numbers of the leases that are not held any more.
local now = clock()
local ids, at, reply = held(2, 3, now)
if #ids == 0 then return reply end

-- A reaped entry is where its envelope placed it; if that cannot be read by now it stays there for the next claim.
local envelopes, going = call("HMGET", env, unpack(ids)), {}
for i, id in ipairs(ids) do
  if parsed(envelopes[i]) or call("ZSCORE", leases, id) then going[#going + 1] = i end
end
leave(ids)
come_back(ids, now)
for _, i in ipairs(going) do
  local id = ids[i]
  local hold, due, rest = ARGV[at[i] + 2]:match("^(%l*)(%S+) (.*)$")
  local head = parsed(envelopes[i]) or place(now, count_places(1, now)) .. " 0 " .. whole(now)
  local stays, run_at, created = head:match("^(%d+) (%d+) (%d+)")
  local again = moment(due, now)
  local waits = hold ~= "" and again
  if waits then again = tonumber(run_at) end
  local envelope = stays .. " " .. whole(again) .. " " .. created .. " " .. rest
  local is_laned = lane_of(envelope) ~= nil
  if waits and not is_laned then again = waits end
  call("HSET", env, id, envelope)
  enqueue(id, envelope, waits and is_laned and 0 or again, now, is_laned)
  if waits and is_laned then laned(now).hold(id, envelope, hold, waits) end
end
finish_lanes()
call("HDEL", own, unpack(ids))
ring(#ids, ARGV[1])
return reply
