-- keys: body env ready delayed leases own wait aged lanes_ready lanes_scheduled lanes_queued lanes names out flip meta done bell inbox repeated
-- with: rates inbox
-- Leases entries to a worker, and takes as many from a rate limit. Two more keys are the rate, and the spacing that it shares with
-- other rate limits: the moment of the last grant.
-- Arguments: the number of units of work at most; the number of entries at most; the microseconds of the lease; its
-- token; 1 if the entries begin with the claim, else 0; its owner; the microseconds for which finished ids are refused
-- ("" for none); limit, span, ways, buffer and margin of the window.
-- Answer: see claiming.lua; the reason is "unreadable" if the rate or the spacing cannot be read.
local now, limit, ahead, most = clock(), tonumber(ARGV[1]), 0, tonumber(ARGV[2])
local span, token, begin, owner, remember = unpack(ARGV, 3)
local KEPT, rates, rate_key, spacing_key = 10 * 365 * 86400 * 1000, rate_rules(), KEYS[21], KEYS[22]
call("HDEL", own, "") -- a write that takes no memory

local kept = call("GET", rate_key)
local rate = kept and rates.read(kept)
if kept and not rate then return {now, -1, "unreadable", {}, {}, "", {}} end
local given = {}
for i = 8, 12 do given[#given + 1] = tonumber(ARGV[i]) end
rate = rates.agreed(rate, rates.window(unpack(given)), now)
local own_last = rate.last
if spacing_key then
  local last = tonumber(call("GET", spacing_key) or 0)
  if not last then return {now, -1, "unreadable", {}, {}, "", {}} end
  rate.last = math.max(rate.last, last)
end

-- Two milliseconds more: Redis counts whole ones, from a moment before now.
local kept_for = math.ceil(2 * rate.window.span / 1000) + 2
local function save()
  call("SET", rate_key, rates.written(rate), "PX", rate.fixed == "1" and KEPT or kept_for)
end

local free, pause, why = rates.capacity(rate, now)
if free == 0 then
  rate.last = own_last -- without grants of other users, which may be returned
  save()
  return {now, pause, why, {}, {}, "", {}}
end
local wanted = limit
limit, most = math.min(limit, free), math.min(most, free)
-- with: claiming
if count == 0 then
  rate.last = own_last
else
  rates.spend({rate}, count, now)
  if spacing_key then call("SET", spacing_key, whole(now), "PX", kept_for) end
end
save()
free, pause, why = rates.capacity(rate, now)
-- More is at hand, and the rate limit stops it.
if reply[2] == 0 and free == 0 and units < wanted then reply[2], reply[3] = pause, why end
return reply
