-- keys: body env ready delayed leases own
-- with: lines
-- args: state, limit, score and member of the cursor ("" and "" for none).
-- Gives score, member, id, envelope, data, token and owner of each.
local state, now, reply = ARGV[1], clock(), {}
local line = ({ready = ready, delayed = delayed, leased = leases})[state]
if state == "ready" then promote(now, ARGV[2] + 32) end

-- Byte by byte, as Redis sorts; Lua's own comparison follows the locale.
local function is_behind(one, other)
  for i = 1, math.min(#one, #other) do
    if one:byte(i) ~= other:byte(i) then return one:byte(i) > other:byte(i) end
  end
  return #one > #other
end

-- The rank of the first behind the cursor. What the cursor stood on may be gone, so it is searched by halves.
local function rank_behind(at, name)
  local low, high = 0, call("ZCARD", line)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = call("ZRANGE", line, middle, middle, "WITHSCORES")
    local there = tonumber(found[2])
    if there > at or there == at and is_behind(found[1], name) then high = middle else low = middle + 1 end
  end
  return low
end

local first = 0
if ARGV[3] ~= "" then
  first = rank_behind(tonumber(ARGV[3]), ARGV[4])
elseif state == "delayed" then
  first = call("ZCOUNT", delayed, "-inf", now) -- due already, so they count as ready
end
local found = call("ZRANGE", line, first, first + ARGV[2] - 1, "WITHSCORES")
for i = 1, #found, 2 do
  local id = state == "leased" and found[i] or found[i]:sub(DIGITS + 1)
  local envelope, data = call("HGET", env, id), call("HGET", body, id)
  if envelope and data then
    for _, value in ipairs({found[i + 1], found[i], id, envelope, data, call("HGET", own, id) or ""}) do
      reply[#reply + 1] = value
    end
  end
end
return reply
