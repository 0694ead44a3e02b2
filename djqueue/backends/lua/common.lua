-- Stands before every script. Times are microseconds by the server's clock.
--
-- An envelope is "place run_at created priority attempts lost failures lane label\ntext". The place is 28 digits, the
-- moment at which the entry first fell due (16) and its number, and never changes; lane and label are lengths within the text.
-- place .. id is the member of ready (score: -priority) and of delayed (score: the moment at which it is due).
-- own holds, by id, the token of the last claim (16 digits) and its owner.
--
-- A full Redis refuses a script at its first write, if that is one that takes memory, and never later. So put begins with
-- such a write, and all others begin with one that takes none.
local call, FAR, DIGITS, MOMENT, TOKEN = redis.call, 9007199254740991, 28, 16, 16

local function clock()
  local time = call("TIME")
  return time[1] * 1000000 + time[2]
end

local function whole(number)
  return string.format("%.0f", number)
end

local function member(id, envelope)
  return envelope:sub(1, DIGITS) .. id
end

local function score(envelope)
  return -tonumber(envelope:match("^%d+ %d+ %d+ (%-?%d+)"))
end

-- "+5" is five from now, "5" is an absolute moment, "0" is none.
local function moment(due, now)
  local at = tonumber(due)
  if due:byte() == 43 then at = at + now end
  return math.min(at, FAR)
end

local function stand(id, envelope, at, now)
  if at > now then
    call("ZADD", delayed, at, member(id, envelope))
  else
    call("ZADD", ready, score(envelope), member(id, envelope))
  end
end

-- Whoever sleeps wakes; rings beyond those who sleep are kept, a few of them, for those about to.
local function ring(times, most)
  times = math.min(times, tonumber(most))
  for _ = 1, times do call("LPUSH", bell, "1") end
  if times > 0 then call("LTRIM", bell, 0, most - 1) end
end

local function promote(now, limit)
  local due = call("ZRANGEBYSCORE", delayed, "-inf", now, "LIMIT", 0, limit)
  if #due == 0 then return end
  local ids, scored = {}, {}
  for i, name in ipairs(due) do ids[i] = name:sub(DIGITS + 1) end
  for i, envelope in ipairs(call("HMGET", env, unpack(ids))) do
    if envelope then
      scored[#scored + 1] = score(envelope)
      scored[#scored + 1] = due[i]
    end
  end
  call("ZREM", delayed, unpack(due))
  if #scored > 0 then call("ZADD", ready, unpack(scored)) end
end

local function until_first(line, now)
  local first = call("ZRANGE", line, 0, 0, "WITHSCORES")
  return first[2] and math.max(0, first[2] - now) or -1
end

-- ARGV from `first` on is id, token, ... by `step`. Gives the ids whose token is still the entry's own, where they stand in
-- ARGV, and the reply: the time and the numbers of all others.
local function held(first, step, now)
  local ids, at, reply, seen = {}, {}, {now}, {}
  for i = first, #ARGV, step do
    local id = ARGV[i]
    local owned = not seen[id] and call("HGET", own, id)
    if owned and owned:sub(1, TOKEN) == ARGV[i + 1] then
      ids[#ids + 1], at[#at + 1], seen[id] = id, i, true
    else
      reply[#reply + 1] = (i - first) / step + 1
    end
  end
  return ids, at, reply
end

-- Takes leased entries out of their line, and those out of ready that were reaped and that nobody took; gives the latter.
local function leave(ids)
  local reaped = {}
  if #ids > 0 and call("ZREM", leases, unpack(ids)) < #ids then
    for _, id in ipairs(ids) do
      if call("ZREM", ready, member(id, call("HGET", env, id))) == 1 then reaped[#reaped + 1] = id end
    end
  end
  return reaped
end

local function add_lost(id, envelope, count)
  local head, lost, rest = envelope:match("^(%d+ %d+ %d+ %-?%d+ %d+ )(%d+)(.*)$")
  envelope = head .. whole(lost + count) .. rest
  call("HSET", env, id, envelope)
  return envelope
end
