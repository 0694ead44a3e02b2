-- What a claim does. Needs places and turns.

-- Ids, what `out` will have of them, and the number of the unit of each; whether more is at hand; how many units.
local function pick_from_lanes(limit, ahead, most, now)
  local turns, was_laned = lane_turns(laned(now)), call("EXISTS", flip) == 1
  local fronts = call(LIFO and "ZREVRANGE" or "ZRANGE", ready, 0, limit - 1, "WITHSCORES")
  local ids, had_left, units, used, count = {}, {}, {}, 0, 0
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
    else
      local run, has_left, joins = turns.take_turn(lane, most - #ids)
      for _, id in ipairs(run) do
        ids[#ids + 1] = id
        had_left[#ids], units[#ids] = has_left, joins and count or 0
      end
      was_laned = true
    end
  end
  if used > 0 then call(LIFO and "ZPOPMAX" or "ZPOPMIN", ready, used) end
  if count > 0 and was_laned then call("SET", flip, 1, "EX", 60) elseif count > 0 then call("DEL", flip) end
  return ids, had_left, units, count >= limit or #ids >= most or lane ~= nil, count
end

local function pick(limit, ahead, most, now)
  promote(now, limit + 32)
  if kept_rules or call("EXISTS", open, timed, flip) > 0 then
    call("HDEL", own, "") -- what writes first may take no memory, or a server that is full would refuse
    laned(now).wake(limit + 32)
    return pick_from_lanes(limit, ahead, most, now)
  end
  local popped, ids = call(LIFO and "ZPOPMAX" or "ZPOPMIN", ready, math.min(limit, most)), {}
  for i = 1, #popped, 2 do ids[#ids + 1] = popped[i]:sub(DIGITS + 1) end
  return ids, nil, nil, #ids >= math.min(limit, most), #ids
end

-- Microseconds until more may come: those of the first that is delayed, or of the first lane that opens by itself.
local function until_more(has_more, now)
  if has_more then return 0 end
  local again = until_first(delayed, now)
  if not kept_rules then return again end
  local opens = until_first(timed, now)
  return (again < 0 or opens >= 0 and opens < again) and opens or again
end

-- Forgets what lost its body; its lane too.
local function forget(ids, missing, had_left, now)
  local gone = {}
  for i, at in ipairs(missing) do
    gone[i] = ids[at]
    if had_left and had_left[at] then laned(now).back(had_left[at], 1) end
  end
  for _, hash in ipairs({body, env, own}) do call("HDEL", hash, unpack(gone)) end
end

-- Claims up to so many units of work, of up to so many entries. Gives the reply of a claim, how many entries and how many
-- units it is. The reply is now, microseconds until more may come (-1: nothing is known to), how many had lost their body,
-- the unit of each that is one of several (none if there are no such units); then id, envelope, data of each.
local function claim(limit, ahead, most, span, token, now)
  local ids, had_left, units, has_more, count = pick(limit, ahead, most, now)
  local reply, missing, joined = {now, 0, 0, {}}, {}, false
  local envelopes, leased, owned, left = {}, {}, {}, {}
  local old = #ids > 0 and call("HMGET", env, unpack(ids)) or {}
  local bodies = #ids > 0 and call("HMGET", body, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    if old[i] and bodies[i] then
      local head, attempts, rest = old[i]:match("^(%d+ %d+ %d+ %-?%d+ )(%d+)(.*)$")
      local envelope, n = head .. attempts + 1 .. rest, #leased
      envelopes[n + 1], envelopes[n + 2] = id, envelope
      leased[n + 1], leased[n + 2] = now + span, id
      owned[n + 1], owned[n + 2] = id, token
      if had_left and had_left[i] then
        left[#left + 1] = id
        left[#left + 1] = had_left[i]
        joined = joined or units[i] > 0
      end
      if units then reply[4][n / 2 + 1] = units[i] or 0 end
      n = #reply
      reply[n + 1], reply[n + 2], reply[n + 3] = id, envelope, bodies[i]
    else
      missing[#missing + 1] = i
    end
  end
  if not joined then reply[4] = {} end
  if #missing > 0 then
    reply[3] = #missing
    forget(ids, missing, had_left, now)
  end
  if #leased > 0 then
    call("HSET", env, unpack(envelopes))
    call("ZADD", leases, unpack(leased))
    call("HSET", own, unpack(owned))
  end
  if #left > 0 then call("HSET", out, unpack(left)) end
  finish_lanes()
  reply[2] = until_more(has_more, now)
  return reply, #leased / 2, count
end
