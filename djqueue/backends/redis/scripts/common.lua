-- The head of every script. Times are microseconds by the server's clock.
--
-- An envelope is "place run_at created priority attempts lost failures lane command\ntext"; lane and command are lengths within
-- the text. The place has 28 digits: the moment at which the entry first fell due (16) and its number. It changes when the entry
-- is postponed, fails or is requeued. An entry with a gate has three lengths, lane, command and gate, in bytes, and waits in
-- its lane (lanes.lua) instead of in ready.
-- place .. id is the member of ready (score: -priority; LIFO: priority; in a failed queue: 0) and of delayed (score: when it is
-- due). own holds, by id, the token of the last claim (16 digits), 1 if that attempt has begun, else 0, and the owner.
-- What was put without a script lies in the inbox (inbox.lua).
--
-- A script that fails is not rolled back. So an entry is read and parsed before it leaves its line, and the token goes last, so
-- that a verb can be repeated. A key of a wrong type stops a script: what puts or ends entries first checks the keys that it will
-- write (check), and a sweep puts back what any other left in no line. A full Redis refuses a script at its first write, if that
-- takes memory, and never later. So put begins with such a write, and all others with one that takes none.
local call, FAR, DIGITS, MOMENT, TOKEN, WAITING = redis.call, 9007199254740991, 28, 16, 16, 51
local IS_FAILED = KEYS[1]:find("}:failed:", 1, true) -- names have no braces of their own in a key

local function clock()
  local time = call("TIME")
  return time[1] * 1000000 + time[2]
end

local function whole(number)
  return string.format("%.0f", number)
end

-- Stops the script if one of these keys is of another type than the verb is for: HLEN, ZCARD, LLEN or STRLEN.
local function check(verb, ...)
  for _, key in ipairs({...}) do call(verb, key) end
end

-- Writes pairs by HSET or ZADD. What is small and has short members is a list to the server, which reads that for each member. A
-- member that is too long for a list makes an index of it; no id is of such bytes.
local function write(verb, key, pairs)
  if #pairs <= 32 then return call(verb, key, unpack(pairs)) end
  local long = string.rep("\255", 65)
  if verb == "HSET" then
    call("HSET", key, long, "", unpack(pairs))
    call("HDEL", key, long)
  else
    call("ZADD", key, 0, long, unpack(pairs))
    call("ZREM", key, long)
  end
end

local function place(at, number)
  return string.format("%016.0f%012.0f", at, number)
end

local ENVELOPE, LONGEST = "^(%d+ %d+ %d+ %-?%d+ )(%d+)( (%d+) %d+ %d+ %d+ ?%d*()\n.*)$", 200

-- The part before the attempts, the attempts, the part behind them, and how often it was lost; nil if it cannot be read.
-- Its numbers are of bounded length.
local function parsed(envelope)
  local head, attempts, rest, lost, text = (envelope or ""):match(ENVELOPE)
  if not head or text > LONGEST or head:byte(DIGITS + 1) ~= 32 then return nil end
  return head, attempts, rest, lost
end

-- Counts in meta. A value that is no number is replaced by `start`.
local function count_up(field, by, start)
  local number = redis.pcall("HINCRBY", meta, field, by)
  if type(number) == "number" then return number end
  call("HSET", meta, field, whole(start))
  return call("HINCRBY", meta, field, by)
end

-- Takes numbers for places; gives the last of them.
local function count_places(by, now)
  return count_up("seq", by, now / 1000000)
end

-- Gives the numbers of places that follow each other, as text: ten of them differ in the last digit, and to format one takes time.
local function numbers(next)
  local digits, tens = {[0] = "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, nil
  return function()
    local last = next % 10
    if last == 0 or not tens then tens = string.format("%011.0f", (next - last) / 10) end
    next = next + 1
    return tens .. digits[last]
  end
end

local function member(id, envelope)
  return envelope:sub(1, DIGITS) .. id
end

local function score(envelope)
  if IS_FAILED then return 0 end
  local priority = tonumber(envelope:match("^%d+ %d+ (%-?%d+)", DIGITS + 2))
  return LIFO and priority or -priority
end

-- Lane and gate of an entry that waits for others, its priority, and how often it was lost. Failed queues know no gates.
local function lane_of(envelope)
  if IS_FAILED then return nil end
  local priority, lost, lane, command, gate, first =
    envelope:match("^%d+ %d+ %d+ (%-?%d+) %d+ (%d+) %d+ (%d+) (%d+) (%d+)\n()")
  if not gate then return nil end
  local at = first + lane + command
  return envelope:sub(first, first + lane - 1), envelope:sub(at, at + gate - 1), priority, lost
end

-- "+5" is five from now, "5" is an absolute moment, "0" is none.
local function moment(due, now)
  local at = tonumber(due)
  if due:byte() == 43 then at = at + now end
  return math.min(at, FAR)
end

-- Wakes waiting consumers. A few more signals are kept for consumers that are about to wait.
local function ring(times, most)
  local rings = {}
  for i = 1, math.min(times, tonumber(most)) do rings[i] = "1" end
  if #rings > 0 and call("LPUSH", bell, unpack(rings)) > tonumber(most) then call("LTRIM", bell, 0, most - 1) end
end
