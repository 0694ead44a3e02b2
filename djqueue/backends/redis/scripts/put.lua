-- keys: body env ready delayed meta done bell inbox repeated
-- with: inbox
-- Puts entries that are in no lane and have no guard.
-- Arguments: the number of sleeping consumers to wake at most; the microseconds for which finished ids are refused (""
-- for none); then id, data and "- due envelope" of each entry.
-- Answer: the numbers of the entries that were in the queue before or have finished, and an empty list, as no guard
-- refuses any.
local now, ids, here, known = clock(), {}, {}, {}
for i = 3, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local next_number = numbers(count_places(#ids, now) - #ids)
take_in(now)
for number, envelope in ipairs(call("HMGET", env, unpack(ids))) do here[ids[number]] = envelope end

local stands_now = string.format("%016.0f", now)
local created, remember, n, bodies, envelopes, to_ready, to_delayed = " " .. whole(now) .. " ", ARGV[2], 0, {}, {}, {}, {}
local scores = {} -- by what stands behind the moments, which most entries have in common
for number, id in ipairs(ids) do
  local given, place_number = ARGV[3 * number + 2], next_number()
  local finished = remember ~= "" and call("ZSCORE", done, id)
  if here[id] or finished and now - finished < tonumber(remember) then
    known[#known + 1] = number
  else
    local due, rest = "0", given:sub(5)
    if given:sub(1, 4) ~= "- 0 " then
      due, rest = given:match("^- (%S+) (.*)$")
    end
    local at = due == "0" and 0 or moment(due, now)
    local stands = (at > 0 and string.format("%016.0f", at) or stands_now) .. place_number
    local envelope = stands .. " " .. (due == "0" and due or whole(at)) .. created .. rest
    n = n + 2
    bodies[n - 1], bodies[n], envelopes[n - 1], envelopes[n] = id, ARGV[3 * number + 1], id, envelope
    if at > now then
      to_delayed[#to_delayed + 1] = at
      to_delayed[#to_delayed + 1] = stands .. id
    else
      scores[rest] = scores[rest] or whole(score(envelope))
      to_ready[#to_ready + 1] = scores[rest]
      to_ready[#to_ready + 1] = stands .. id
    end
    here[id] = true
  end
end
if n > 0 then
  check("HLEN", body)
  check("ZCARD", ready, delayed)
  check("LLEN", bell)
  write("HSET", body, bodies)
  write("HSET", env, envelopes)
end
if #to_delayed > 0 then write("ZADD", delayed, to_delayed) end
if #to_ready > 0 then write("ZADD", ready, to_ready) end
ring(n / 2, ARGV[1])
return {known, {}}
