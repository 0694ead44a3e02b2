-- The verbs of holders of leases.

-- ARGV from `first` on is id, token, ... by `step`. Gives the ids whose token is still valid, where they are in ARGV, and the
-- reply: the time and the numbers of all others.
local function held(first, step, now)
  local ids, at, reply, seen, asked = {}, {}, {now}, {}, {}
  for i = first, #ARGV, step do asked[#asked + 1] = ARGV[i] end
  for number, owned in ipairs(#asked > 0 and call("HMGET", own, unpack(asked)) or {}) do
    local id, i = asked[number], first + (number - 1) * step
    if owned and not seen[id] and owned:sub(1, TOKEN) == ARGV[i + 1] then
      ids[#ids + 1], at[#at + 1], seen[id] = id, i, true
    else
      reply[#reply + 1] = number
    end
  end
  return ids, at, reply
end

-- Whether the start that a value of `own` records has begun.
local function has_begun(owned)
  return owned and owned:sub(TOKEN + 1, TOKEN + 1) ~= "0"
end

-- Removes entries from leases, and from ready those that were reaped and not leased since; gives the latter.
local function leave(ids)
  local reaped = {}
  if #ids > 0 and call("ZREM", leases, unpack(ids)) < #ids then
    for _, id in ipairs(ids) do
      if call("ZREM", ready, member(id, call("HGET", env, id) or "")) == 1 then reaped[#reaped + 1] = id end
    end
  end
  return reaped
end

local function add_lost(id, envelope, count)
  local head, lost, rest = (envelope or ""):match("^(%d+ %d+ %d+ %-?%d+ %d+ )(%d+)(.*)$")
  if not head then return envelope end
  envelope = head .. whole(lost + count) .. rest
  call("HSET", env, id, envelope)
  return envelope
end
