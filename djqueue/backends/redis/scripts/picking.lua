-- How a claim picks entries when lanes have some. Needs lanes and places.

-- Ids; what `out` will have of them, the number of the unit of each, and whether it is the first of a unit; whether more is at
-- hand; how many units.
local function pick_from_lanes(limit, ahead, most, now)
  local turns, was_laned = laned(now).turns(), call("EXISTS", flip) == 1
  local fronts = call(LIFO and "ZREVRANGE" or "ZRANGE", ready, 0, limit - 1, "WITHSCORES")
  local ids, had_left, units, first, used, count = {}, {}, {}, {}, 0, 0
  local lane
  while count < limit and #ids < most do
    lane = turns.first_ready(limit)
    local own = fronts[2 * used + 2] and (LIFO and -fronts[2 * used + 2] or tonumber(fronts[2 * used + 2]))
    local is_ready = lane and not (count >= limit - ahead and turns.is_throttled(lane))
    if not own and not is_ready then break end
    count = count + 1
    if not is_ready or own and (own < lane.rank or own == lane.rank and was_laned) then
      ids[#ids + 1], was_laned = fronts[2 * used + 1]:sub(DIGITS + 1), false
      used = used + 1
      first[#ids] = true
    else
      local run, has_left, joins = turns.take_turn(lane, most - #ids)
      for _, id in ipairs(run) do
        ids[#ids + 1] = id
        had_left[#ids], units[#ids] = has_left, joins and count or 0
        first[#ids] = id == run[1]
      end
      was_laned = true
    end
  end
  if used > 0 then call(LIFO and "ZPOPMAX" or "ZPOPMIN", ready, used) end
  if count > 0 and was_laned then call("SET", flip, 1, "EX", 60) elseif count > 0 then call("DEL", flip) end
  return ids, {left = had_left, units = units, first = first}, count >= limit or #ids >= most or lane ~= nil, count
end
