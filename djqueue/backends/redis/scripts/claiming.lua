-- What a claim does. No function, but a passage of the scripts claim, claim_within and exchange: as most queues have no lanes, what is for
-- lanes is defined only where there are some. Needs inbox.
--
-- Needs: now; limit, the number of units of work at most; ahead, how many of these would wait for a worker; most, the number of
-- entries at most; span, the microseconds of the lease; token; begin, "1" if the first of each unit begins with the claim; owner;
-- remember, the microseconds for which finished ids are refused ("" for none).
-- Sets: reply; count, the number of entries that it gives; units, the number of units of work that they are.
--
-- The reply is: now; microseconds until more may come (0: more is at hand, -1: nothing is known to come); why a rate limit lets no
-- more leave now ("" if none does); id and reason of each entry that cannot be run; the unit of each entry that is one of several
-- (none if there are no such units); a text with 1 or 0 for each entry, whether it begins; nothing yet; then id, envelope and data
-- of each.
-- An entry that cannot be run is leased like the others, so that it is not lost if it is not put aside.

-- Why an entry that was picked cannot be run; nil if it can.
local function fault_of(id, envelope, data, remember, now)
  if not data then return envelope and "it had no body: does the server evict keys?" or "it had no body and no envelope" end
  if not envelope then return "it had no envelope" end
  local finished = remember ~= "" and call("ZSCORE", done, id)
  if finished and now - finished < tonumber(remember) then return "it was completed before" end
end

-- The envelope with one attempt more, and whether it was never lost; nil if it cannot be read. Most have no attempt yet: of these the
-- client reads the other numbers, and puts aside what it cannot read.
local function counted(envelope)
  local first = envelope:byte(DIGITS + 1) == 32 and envelope:find(" ", DIGITS + 2, true)
  local second = first and envelope:find(" ", first + 1, true)
  local third = second and envelope:find(" ", second + 1, true)
  if third and envelope:sub(third + 1, third + 4) == "0 0 " then return envelope:sub(1, third) .. "1" .. envelope:sub(third + 2), true end
  local head, attempts, rest, lost = parsed(envelope)
  if head then return head .. whole(attempts + 1) .. rest, lost == "0" end
end

local ids, of_lanes, has_more, units, finish, old, bodies, arrived
local due, has_lanes = call("ZRANGEBYSCORE", delayed, "-inf", now, "LIMIT", 0, limit + 32), call("EXISTS", lanes_ready, lanes_scheduled, flip) > 0
if not IS_FAILED and call("XLEN", inbox) > 0 then
  local is_usual = false
  if #due == 0 and not has_lanes and not LIFO and remember == "" and call("ZCARD", ready) == 0 then
    ids, old, bodies, arrived, is_usual = arrivals(math.min(limit, most), now, 1)
  end
  if is_usual then -- the first of all, which need not stand in line
    check("HLEN", own)
    check("ZCARD", leases)
    has_more, units = arrived >= math.min(limit, most), #ids
    keep_by_id(body, ids, bodies)
  else
    ids, arrived = nil, nil
    take_in(now, limit)
  end
end
if #due > 0 or has_lanes then
  -- with: lanes places picking
  if #due > 0 then promote(now, limit + 32) end
  if has_lanes or kept_rules then
    call("HDEL", own, "") -- the first write may take no memory, or a full server would refuse it
    call("ZREM", leases, "")
    check("HLEN", out)
    laned(now).wake(limit + 32)
    ids, of_lanes, has_more, units = pick_from_lanes(limit, ahead, most, now)
    finish = finish_lanes
  end
end
if not ids then
  ids = call(LIFO and "ZREVRANGE" or "ZRANGE", ready, 0, math.min(limit, most) - 1)
  for i, name in ipairs(ids) do ids[i] = name:sub(DIGITS + 1) end
  has_more, units = #ids >= math.min(limit, most), #ids
end

local reply, is_joined = {now, 0, "", {}, {}, "", {}}, false
local envelopes, leased, owned, left, flags = {}, {}, {}, {}, {}
local as_begun, as_waiting, runs_out = token .. "1" .. owner, token .. "0" .. owner, whole(now + span)
if not arrived then
  old = #ids > 0 and call("HMGET", env, unpack(ids)) or {}
  bodies = #ids > 0 and call("HMGET", body, unpack(ids)) or {}
end
local n, row = 0, #reply
for i, id in ipairs(ids) do
  local data, envelope, is_new = bodies[i], nil, nil
  local fault = (not data or not old[i] or remember ~= "") and fault_of(id, old[i], data, remember, now)
  if arrived then
    envelope, is_new = old[i], true
  elseif not fault then
    envelope, is_new = counted(old[i])
  end
  if not fault and not envelope then fault = "its envelope cannot be read" end
  local begins = begin == "1" and is_new and (not of_lanes or of_lanes.first[i])
  leased[2 * i - 1], leased[2 * i] = runs_out, id
  owned[2 * i - 1], owned[2 * i] = id, begins and as_begun or as_waiting
  if of_lanes and of_lanes.left[i] then
    left[#left + 1] = id
    left[#left + 1] = of_lanes.left[i]
  end
  if fault then
    reply[4][#reply[4] + 1] = id
    reply[4][#reply[4] + 1] = fault
  else
    n = n + 1
    envelopes[2 * n - 1], envelopes[2 * n], flags[n] = id, envelope, begins and "1" or "0"
    if of_lanes then
      reply[5][n] = of_lanes.units[i] or 0
      is_joined = is_joined or reply[5][n] > 0
    end
    reply[row + 1], reply[row + 2], reply[row + 3] = id, envelope, data
    row = row + 3
  end
end
if not is_joined then reply[5] = {} end
reply[6] = table.concat(flags)
if #leased > 0 then
  call("ZREM", leases, "") -- a write that takes no memory
  write("HSET", own, owned)
  if n > 0 then call("HSET", env, unpack(envelopes)) end
  write("ZADD", leases, leased)
  if not of_lanes and not arrived then call("ZREMRANGEBYRANK", ready, LIFO and -#ids or 0, LIFO and -1 or #ids - 1) end
end
if arrived then leave_inbox(arrived) end
if #left > 0 then call("HSET", out, unpack(left)) end
if finish then finish() end

if not has_more then
  reply[2] = -1
  for _, line_key in ipairs(finish and {delayed, lanes_scheduled} or {delayed}) do
    local first = call("ZRANGE", line_key, 0, 0, "WITHSCORES")[2]
    local again = first and math.max(0, first - now)
    if again and (reply[2] < 0 or again < reply[2]) then reply[2] = again end
  end
end
local count = n
