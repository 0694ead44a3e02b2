-- keys: env ready delayed leases own bell meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names out
-- with: lanes
-- Corrects lanes that are not where their records place them, or whose number in flight is wrong: a key may have been
-- deleted, or set aside for its type.
-- Arguments: the number of sleeping consumers to wake at most; a cursor; the number of lanes to look at.
-- Answer: the next cursor ("0": that was all); the names of the lanes; the number of members that had a score of their
-- own, in lines that are ordered by member and can be read only if all scores are equal.
local now, counts, wrong = clock(), {}, {}
call("ZREM", ready, "") -- a write that takes no memory
for _, had_left in ipairs(call("HVALS", out)) do
  local is_readable, name, within = pcall(cmsgpack.unpack, had_left)
  if is_readable and name then counts[name] = (counts[name] or 0) + 1 end
  if is_readable and within then counts[within] = (counts[within] or 0) + 1 end
end

local function level(line_key)
  local odd = 0
  for _, span in ipairs({{"-inf", "(0"}, {"(0", "+inf"}}) do
    local scored = {}
    for _, name in ipairs(call("ZRANGEBYSCORE", line_key, span[1], span[2])) do
      scored[#scored + 1] = 0
      scored[#scored + 1] = name
    end
    laned(now).in_parts("ZADD", line_key, scored)
    odd = odd + #scored / 2
  end
  return odd
end

local function is_missing(lane)
  if lane.where == "ready" then return not call("ZSCORE", lanes_ready, string.format("%016.0f", lane.turn) .. lane.name) end
  return lane.where == "scheduled" and not call("ZSCORE", lanes_scheduled, lane.name)
end

-- The entries in it could not be seen when it was last placed.
local function is_headless(lane)
  return lane.waiting > 0 and lane.head == "" and laned(now).first_of(wait, lane.number, 1)[1]
end

local levelled = level(wait) + level(aged) + level(lanes_queued) + level(names)
local cursor, found = unpack(call("HSCAN", lanes, ARGV[2], "COUNT", ARGV[3]))
for i = 1, #found, 2 do
  local lane = laned(now).get(found[i])
  if lane and (is_missing(lane) or is_headless(lane) or lane.in_flight ~= (counts[lane.name] or 0)) then
    if is_missing(lane) then lane.where = "closed" end
    if is_headless(lane) then lane.head = nil end
    lane.in_flight = counts[lane.name] or 0
    laned(now).touch(lane)
    wrong[#wrong + 1] = lane.name
  end
end
finish_lanes()
ring(#wrong + levelled, ARGV[1])
return {cursor, wrong, levelled}
