-- keys: body env ready delayed leases own meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names bell inbox repeated
-- with: lanes places inbox
-- Reads entries of one state, in their order. Entries that wait in lanes come last, lane by lane.
-- Arguments: the state; the number of entries at most; score and member of the cursor ("" and "" for none; the score of
-- entries that wait in lanes is "lanes"); with that score the name of the only lane that is asked for, or "".
-- Answer: score, member, id, envelope, data, and token with owner, of each entry.
local state, limit, now, reply = ARGV[1], tonumber(ARGV[2]), clock(), {}
local among, is_last_first = ({ready = ready, delayed = delayed, leased = leases})[state], LIFO and state == "ready"
local range, seen_first = is_last_first and "ZREVRANGE" or "ZRANGE", is_last_first and -1 or 1
if state == "ready" then
  take_in_to_read(now)
  promote(now, limit + 32)
  finish_lanes()
end

-- Byte by byte, as Redis sorts; Lua's own comparison follows the locale. 1, 0 or -1.
local function compared(one, other)
  for i = 1, math.min(#one, #other) do
    if one:byte(i) ~= other:byte(i) then return one:byte(i) > other:byte(i) and 1 or -1 end
  end
  return #one > #other and 1 or #one < #other and -1 or 0
end

-- The rank of the first behind the cursor. The member of the cursor may be gone, so it is searched by halves.
local function rank_behind(at, name)
  local low, high = 0, call("ZCARD", among)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = call(range, among, middle, middle, "WITHSCORES")
    local there = tonumber(found[2])
    local side = there > at and 1 or there < at and -1 or compared(found[1], name)
    if side * seen_first > 0 then high = middle else low = middle + 1 end
  end
  return low
end

-- with: telling
local function tell_of_line()
  local first = 0
  if ARGV[3] ~= "" then
    first = rank_behind(tonumber(ARGV[3]), ARGV[4])
  elseif state == "delayed" then
    first = call("ZCOUNT", delayed, "-inf", now) -- due already, so they count as ready
  end
  local found = call(range, among, first, first + limit - 1, "WITHSCORES")
  for i = 1, #found, 2 do tell(found[i + 1], found[i], state == "leased" and found[i] or found[i]:sub(DIGITS + 1)) end
  return #found / 2
end

local told, first, last = ARGV[3] == "lanes" and 0 or tell_of_line(), "-", "+"
if ARGV[5] ~= "" then
  local lane = laned(now).get(ARGV[5])
  if not lane then return reply end
  first, last = "[" .. lane.number, "(" .. lane.number .. ":"
end
if state == "ready" and told < limit then
  if ARGV[3] == "lanes" and ARGV[4] ~= "" then first = "(" .. ARGV[4] end
  for _, name in ipairs(call("ZRANGEBYLEX", wait, first, last, "LIMIT", 0, limit - told)) do
    tell("lanes", name, name:sub(WAITING + 1))
  end
end
return reply
