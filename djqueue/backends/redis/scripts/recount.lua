-- keys: env ready delayed leases own bell meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names out
-- with: lanes
-- Corrects lanes that are not where their records place them, or whose number in flight is wrong: a key may have been
-- deleted, or moved aside for its type.
-- Arguments: the number of sleeping consumers to wake at most; a cursor; the number of lanes to look at.
-- Answer: the next cursor ("0": that was all); the names of the lanes.
local now, counts, wrong = clock(), {}, {}
call("ZREM", ready, "") -- a write that takes no memory
for _, had_left in ipairs(call("HVALS", out)) do
  local is_readable, name, within = pcall(cmsgpack.unpack, had_left)
  if is_readable and name then counts[name] = (counts[name] or 0) + 1 end
  if is_readable and within then counts[within] = (counts[within] or 0) + 1 end
end

local function is_missing(lane)
  if lane.where == "ready" then return not call("ZSCORE", lanes_ready, string.format("%016.0f", lane.turn) .. lane.name) end
  return lane.where == "scheduled" and not call("ZSCORE", lanes_scheduled, lane.name)
end

local cursor, found = unpack(call("HSCAN", lanes, ARGV[2], "COUNT", ARGV[3]))
for i = 1, #found, 2 do
  local lane = laned(now).get(found[i])
  if lane and (is_missing(lane) or lane.in_flight ~= (counts[lane.name] or 0)) then
    if is_missing(lane) then lane.where = "closed" end
    lane.in_flight = counts[lane.name] or 0
    laned(now).touch(lane)
    wrong[#wrong + 1] = lane.name
  end
end
finish_lanes()
ring(#wrong, ARGV[1])
return {cursor, wrong}
