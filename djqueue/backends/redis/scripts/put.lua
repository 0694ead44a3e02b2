-- keys: body env ready delayed meta done bell
-- Puts entries that are in no lane and have no guard.
-- Arguments: the number of sleeping consumers to wake at most; the microseconds for which finished ids are refused (""
-- for none); then id, data and "- due envelope" of each entry.
-- Answer: the numbers of the entries that were in the queue before or have finished, and an empty list, as no guard
-- refuses any.
local now, ids, here, known = clock(), {}, {}, {}
for i = 3, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local seq = count_places(#ids, now) - #ids
for number, envelope in ipairs(call("HMGET", env, unpack(ids))) do here[ids[number]] = envelope end

local created, bodies, envelopes, to_ready, to_delayed = " " .. whole(now) .. " ", {}, {}, {}, {}
for number, id in ipairs(ids) do
  local due, rest = ARGV[3 * number + 2]:match("^- (%S+) (.*)$")
  local finished = ARGV[2] ~= "" and call("ZSCORE", done, id)
  if here[id] or finished and now - finished < tonumber(ARGV[2]) then
    known[#known + 1] = number
  else
    local at, n = moment(due, now), 2 * (number - #known)
    local envelope = place(at > 0 and at or now, seq) .. " " .. whole(at) .. created .. rest
    bodies[n - 1], bodies[n], envelopes[n - 1], envelopes[n] = id, ARGV[3 * number + 1], id, envelope
    local place_in, first = at > now and to_delayed or to_ready, at > now and at or score(envelope)
    place_in[#place_in + 1] = first
    place_in[#place_in + 1] = member(id, envelope)
    here[id] = true
  end
  seq = seq + 1
end
if #bodies > 0 then
  call("HSET", body, unpack(bodies))
  call("HSET", env, unpack(envelopes))
end
if #to_delayed > 0 then call("ZADD", delayed, unpack(to_delayed)) end
if #to_ready > 0 then call("ZADD", ready, unpack(to_ready)) end
ring(#bodies / 2, ARGV[1])
return {known, {}}
