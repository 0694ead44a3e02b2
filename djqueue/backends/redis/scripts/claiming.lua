-- What a claim does. No function, but a passage of the scripts claim and claim_within: as most queues have no lanes, what is for
-- lanes is defined only where there are some.
--
-- Needs: now; limit, the number of units of work at most; ahead, how many of these would wait for a worker; most, the number of
-- entries at most; span, the microseconds of the lease; token; begin, "1" if the first of each unit begins with the claim; owner;
-- remember, the microseconds for which finished ids are refused ("" for none).
-- Sets: reply; count, the number of entries that it gives; units, the number of units of work that they are.
--
-- The reply is: now; microseconds until more may come (0: more is at hand, -1: nothing is known to come); why a rate limit lets no
-- more leave now ("" if none does); id and reason of each entry that cannot be run; the unit of each entry that is one of several
-- (none if there are no such units); a text with 1 or 0 for each entry, whether it begins; then id, envelope and data of each.
-- An entry that cannot be run is leased like the others, so that it is not lost if it is not put aside.

-- Why an entry that was picked cannot be run; nil if it can.
local function fault_of(id, envelope, data, remember, now)
  if not data then return envelope and "it had no body: does the server evict keys?" or "it had no body and no envelope" end
  if not envelope then return "it had no envelope" end
  if not parsed(envelope) then return "its envelope cannot be read" end
  local finished = remember ~= "" and call("ZSCORE", done, id)
  if finished and now - finished < tonumber(remember) then return "it was completed before" end
end

local ids, of_lanes, has_more, units, finish
local due, has_lanes = call("ZRANGEBYSCORE", delayed, "-inf", now, "LIMIT", 0, limit + 32), call("EXISTS", lanes_ready, lanes_scheduled, flip) > 0
if #due > 0 or has_lanes then
  -- with: lanes places picking
  if #due > 0 then promote(now, limit + 32) end
  if has_lanes or kept_rules then
    call("HDEL", own, "") -- the first write may take no memory, or a full server would refuse it
    call("ZREM", leases, "")
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

local reply, is_joined = {now, 0, "", {}, {}, ""}, false
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
    reply[4][#reply[4] + 1] = id
    reply[4][#reply[4] + 1] = fault
  else
    local envelope
    envelope, n = head .. whole(attempts + 1) .. rest, #envelopes
    envelopes[n + 1], envelopes[n + 2] = id, envelope
    flags[#flags + 1] = begins and "1" or "0"
    if of_lanes then
      reply[5][#flags] = of_lanes.units[i] or 0
      is_joined = is_joined or reply[5][#flags] > 0
    end
    n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = id, envelope, bodies[i]
  end
end
if not is_joined then reply[5] = {} end
reply[6] = table.concat(flags)
if #leased > 0 then
  if not of_lanes then call("ZREMRANGEBYRANK", ready, LIFO and -#ids or 0, LIFO and -1 or #ids - 1) end
  call("ZADD", leases, unpack(leased))
  call("HSET", own, unpack(owned))
  if #envelopes > 0 then call("HSET", env, unpack(envelopes)) end
end
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
local count = #flags
