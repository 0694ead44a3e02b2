-- How entries are put of which some are in lanes or have guards. Needs guards, places and inbox.
-- Arguments: the number of sleeping consumers to wake at most; the microseconds for which finished ids are refused (""
-- for none); then id, data and "guard due envelope" of each entry. A guard other than "-" takes the next of the remaining
-- keys; "@" before it means that the entry has a gate.
-- Answer: the numbers of the entries that were in the queue before or have finished; the numbers that their guards refused.

-- Whether it waits or is leased, or is refused as one that has finished.
local function is_there(id, now)
  if call("HEXISTS", env, id) == 1 then return true end
  local finished = ARGV[2] ~= "" and call("ZSCORE", done, id)
  return finished and now - finished < tonumber(ARGV[2])
end

-- Puts the entries; `is_known` is whether an id is there already, `guard` is the number of keys before those of guards.
local function put(now, is_known, guard)
  local decide, known, refused, accepted = nil, {}, {}, 0
  local number_of = (#ARGV - 2) / 3
  local seq = count_places(number_of, now) - number_of
  take_in(now)

  check("HLEN", body)
  check("ZCARD", ready, delayed, leases)
  check("LLEN", bell)
  check("STRLEN", unpack(KEYS, guard + 1))
  for i = 3, #ARGV, 3 do
    if not IS_FAILED and ARGV[i + 2]:byte() == 64 then laned(now).check() end
  end

  local function accept(id, data, at, rest, gated)
    local envelope = place(at > 0 and at or now, seq) .. " " .. whole(at) .. " " .. whole(now) .. " " .. rest
    call("HSET", body, id, data)
    call("HSET", env, id, envelope)
    enqueue(id, envelope, at, now, gated)
    accepted = accepted + 1
  end

  for i = 3, #ARGV, 3 do
    local id, number, given, due, rest = ARGV[i], i / 3, ARGV[i + 2]:match("^(%S+) (%S+) (.*)$")
    local gated = given:byte() == 64 and not IS_FAILED
    if given:byte() == 64 then given = given:sub(2) end
    local at, was_there = moment(due, now), is_known(id, now)
    if given ~= "-" then
      guard, decide = guard + 1, decide or guards()
      if not was_there then at, was_there = decide(given, KEYS[guard], id, at, now) end
    end
    if was_there then
      known[#known + 1] = number
    elseif at then
      accept(id, ARGV[i + 1], at, rest, gated)
    else
      refused[#refused + 1] = number
    end
    seq = seq + 1
  end
  finish_lanes()
  ring(accepted, ARGV[1])
  return {known, refused}
end
