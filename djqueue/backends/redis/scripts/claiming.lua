-- What a claim does. Needs places.

-- Ids; what `out` will have of them, the number of the unit of each, and whether it is the first of a unit; whether more is at
-- hand; how many units.
local function pick_from_lanes(limit, ahead, most, now)
  local turns, was_laned = laned(now).turns(), call("EXISTS", flip) == 1
  local fronts = call(LIFO and "ZREVRANGE" or "ZRANGE", ready, 0, limit - 1, "WITHSCORES")
  local ids, had_left, units, first, used, count = {}, {}, {}, {}, 0, 0
  local lane
  while count < limit and #ids < most do
    lane = turns.first_open(limit)
    local own = fronts[2 * used + 2] and (LIFO and -fronts[2 * used + 2] or tonumber(fronts[2 * used + 2]))
    local is_open = lane and not (count >= limit - ahead and turns.is_throttled(lane))
    if not own and not is_open then break end
    count = count + 1
    if not is_open or own and (own < lane.rank or own == lane.rank and was_laned) then
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

local function pick(limit, ahead, most, now)
  promote(now, limit + 32)
  if kept_rules or call("EXISTS", open, timed, flip) > 0 then
    call("HDEL", own, "") -- what writes first may take no memory, or a server that is full would refuse
    call("ZREM", leases, "")
    laned(now).wake(limit + 32)
    return pick_from_lanes(limit, ahead, most, now)
  end
  local most_ids = math.min(limit, most)
  local ids = call(LIFO and "ZREVRANGE" or "ZRANGE", ready, 0, most_ids - 1)
  for i, name in ipairs(ids) do ids[i] = name:sub(DIGITS + 1) end
  return ids, nil, #ids >= most_ids, #ids
end

-- Microseconds until more may come: those of the first that is delayed, or of the first lane that opens by itself.
local function until_more(has_more, now)
  if has_more then return 0 end
  local again = until_first(delayed, now)
  if not kept_rules then return again end
  local opens = until_first(timed, now)
  return (again < 0 or opens >= 0 and opens < again) and opens or again
end

-- Why an entry that was picked can be given to nobody; nil if it can.
local function fault_of(id, envelope, data, remember, now)
  if not data then return envelope and "it had no body: does the server evict keys?" or "it had no body and no envelope" end
  if not envelope then return "it had no envelope" end
  if not parsed(envelope) then return "its envelope cannot be read" end
  local finished = remember ~= "" and call("ZSCORE", done, id)
  if finished and now - finished < tonumber(remember) then return "it was completed before" end
end

-- Claims up to so many units of work, of up to so many entries; `begin` is "1" if the first of each unit begins with that.
-- Gives the reply of a claim, how many entries and how many units it is. The reply is now, microseconds until more may come
-- (-1: nothing is known to), id and reason of those that can be given to nobody, the unit of each that is one of several (none
-- if there are no such units), 1 or 0 for each: whether it begins; then id, envelope, data of each. What can be given to nobody
-- is leased as the others are, so that it is not lost if nobody puts it aside.
local function claim(limit, ahead, most, span, token, begin, owner, remember, now)
  local ids, of_lanes, has_more, count = pick(limit, ahead, most, now)
  local reply, joined = {now, 0, {}, {}, ""}, false
  local envelopes, leased, owned, left, flags = {}, {}, {}, {}, {}
  local as_begun, as_waiting = token .. "1" .. owner, token .. "0" .. owner
  local old = #ids > 0 and call("HMGET", env, unpack(ids)) or {}
  local bodies = #ids > 0 and call("HMGET", body, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local head, attempts, rest, lost = parsed(old[i])
    local fault = (not head or not bodies[i] or remember ~= "") and fault_of(id, old[i], bodies[i], remember, now)
    local begins = begin == "1" and not fault and lost == "0" and (not of_lanes or of_lanes.first[i])
    local n = #leased
    leased[n + 1], leased[n + 2] = now + span, id
    owned[n + 1], owned[n + 2] = id, begins and as_begun or as_waiting
    if of_lanes and of_lanes.left[i] then
      left[#left + 1] = id
      left[#left + 1] = of_lanes.left[i]
    end
    if fault then
      reply[3][#reply[3] + 1] = id
      reply[3][#reply[3] + 1] = fault
    else
      local envelope
      envelope, n = head .. whole(attempts + 1) .. rest, #envelopes
      envelopes[n + 1], envelopes[n + 2] = id, envelope
      flags[#flags + 1] = begins and "1" or "0"
      if of_lanes then
        reply[4][#flags] = of_lanes.units[i] or 0
        joined = joined or reply[4][#flags] > 0
      end
      n = #reply
      reply[n + 1], reply[n + 2], reply[n + 3] = id, envelope, bodies[i]
    end
  end
  if not joined then reply[4] = {} end
  reply[5] = table.concat(flags)
  if #leased > 0 then
    if not of_lanes then call("ZREMRANGEBYRANK", ready, LIFO and -#ids or 0, LIFO and -1 or #ids - 1) end
    call("ZADD", leases, unpack(leased))
    call("HSET", own, unpack(owned))
    if #envelopes > 0 then call("HSET", env, unpack(envelopes)) end
  end
  if #left > 0 then call("HSET", out, unpack(left)) end
  finish_lanes()
  reply[2] = until_more(has_more, now)
  return reply, #flags, count
end
