-- keys: body env ready delayed meta done bell
-- args: rings, microseconds for which finished ids are refused ("" for none), then id, data, "due ttl envelope" of each.
-- A ttl other than 0 takes the next of the remaining keys as a guard.
-- Gives the numbers of those that were there before, and of those that their guards refused.
local now, guard, known, refused, accepted = clock(), 7, {}, {}, 0
local seq = call("HINCRBY", meta, "seq", (#ARGV - 2) / 3) - (#ARGV - 2) / 3

local function is_known(id)
  if call("HEXISTS", env, id) == 1 then return true end
  local finished = ARGV[2] ~= "" and call("ZSCORE", done, id)
  return finished and now - finished < tonumber(ARGV[2])
end

local function accept(id, data, due, rest)
  local at = moment(due, now)
  local place = string.format("%016.0f%012.0f", at > 0 and at or now, seq)
  local envelope = place .. " " .. whole(at) .. " " .. whole(now) .. " " .. rest
  call("HSET", body, id, data)
  call("HSET", env, id, envelope)
  stand(id, envelope, at, now)
  accepted = accepted + 1
end

for i = 3, #ARGV, 3 do
  local id, number, due, ttl, rest = ARGV[i], i / 3, ARGV[i + 2]:match("^(%S+) (%d+) (.*)$")
  if ttl ~= "0" then guard = guard + 1 end
  if is_known(id) then
    known[#known + 1] = number
  elseif ttl == "0" or call("SET", KEYS[guard], id, "NX", "PX", ttl) then
    accept(id, ARGV[i + 1], due, rest)
  elseif call("GET", KEYS[guard]) == id then
    known[#known + 1] = number
  else
    refused[#refused + 1] = number
  end
  seq = seq + 1
end
ring(accepted, ARGV[1])
return {known, refused}
