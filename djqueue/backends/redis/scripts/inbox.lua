-- What was put by one command each (XADD, without a script) lies in the inbox, a stream of "id command" and body. Each script that
-- reads or changes what waits first takes it in: plain entries, new, of priority 0, due on arrival, in no lane.
--
-- The id of the stream is the millisecond of the arrival, so a place has the last microsecond of that, or the one before now if that
-- is earlier: so it is behind what was put before, and before what this script puts, also if the clock was set back meanwhile.
-- repeated  ids of puts that were sent again as their answer was lost, by when: what arrives late of the first call counts no more.
-- Needs: inbox, repeated, body, env, ready, meta, bell.
local PORTION, LEAST, BELLS = 250, 64, 16

-- What an envelope has behind its moments. The length of a command is counted in characters.
local function plain(attempts, command)
  local _, longer = command:gsub("[\128-\191]", "")
  return " 0 " .. attempts .. " 0 0 0 " .. #command - longer .. "\n" .. command
end

-- The ids, commands and bodies of arrivals, and whether all were written as they should be. What was not has no command, and an id
-- by its place.
local function read_arrivals(found)
  local ids, commands, bodies, is_sound = {}, {}, {}, true
  for i = 1, #found do
    local fields = found[i][2]
    local at = #fields == 2 and fields[1]:find(" ", 2, true)
    if at then
      ids[i], commands[i], bodies[i] = fields[1]:sub(1, at - 1), fields[1]:sub(at + 1), fields[2]
    else
      ids[i], commands[i], bodies[i], is_sound = "inbox-" .. found[i][1], false, table.concat(fields, " "), false
    end
  end
  return ids, commands, bodies, is_sound
end

-- Which of some ids are known: they wait or are leased, or were put again.
local function known_of(ids)
  local known = call("HMGET", env, unpack(ids))
  local put_again = call("EXISTS", repeated) == 1 and call("ZMSCORE", repeated, unpack(ids)) or {}
  for i = 1, #ids do known[ids[i]] = known[i] or put_again[i] end
  return known
end

-- The first arrivals, up to a number: ids, envelopes and bodies of those that are new, how many were read, and whether all are new
-- and sound. What is not sound gets an envelope that says so, and a claim puts it aside like any other.
local function arrivals(count, now, attempts)
  local found, new, envelopes, n = call("XRANGE", inbox, "-", "+", "COUNT", count), {}, {}, 0
  local ids, commands, bodies, is_sound = read_arrivals(found)
  call("ZREM", ready, "") -- a write that takes no memory
  check("HLEN", body)
  local known, next_number = known_of(ids), numbers(count_places(#found, now) - #found)
  local command, arrived, moment, behind
  for i = 1, #ids do
    local id, at, number = ids[i], found[i][1]:match("^%d+"), next_number()
    if not known[id] then
      if at ~= arrived or commands[i] ~= command then
        arrived, command = at, commands[i]
        moment = string.format("%016.0f", math.min(at * 1000 + 999, now - 1))
        behind = " 0 " .. moment .. (command and plain(attempts, command) or " was in the inbox without id, command, body")
      end
      known[id], n = true, n + 1
      new[n], bodies[n], envelopes[n] = id, bodies[i], moment .. number .. behind
    end
  end
  return new, envelopes, bodies, #found, is_sound and n == #found
end

-- Keeps values by id.
local function keep_by_id(hash, ids, values)
  local kept = {}
  for i = 1, #ids do kept[2 * i - 1], kept[2 * i] = ids[i], values[i] end
  if #ids > 0 then write("HSET", hash, kept) end
end

-- Removes the first from the inbox. Each has rung.
local function leave_inbox(count)
  local left = call("XLEN", inbox) - count
  if left > 0 then call("XTRIM", inbox, "MAXLEN", left) else call("DEL", inbox) end
  redis.pcall("LTRIM", bell, 0, BELLS - 1)
end

-- Takes in as many as a claim wants, and some more; all of them without a number.
local function take_in(now, wanted)
  local taken = 0
  while not IS_FAILED and taken < (wanted or FAR) and call("XLEN", inbox) > 0 do
    local ids, envelopes, bodies, read = arrivals(math.min(PORTION, math.max(LEAST, (wanted or FAR) - taken)), now, 0)
    local members = {}
    for i, id in ipairs(ids) do members[2 * i - 1], members[2 * i] = 0, member(id, envelopes[i]) end
    keep_by_id(body, ids, bodies)
    keep_by_id(env, ids, envelopes)
    if #ids > 0 then write("ZADD", ready, members) end
    leave_inbox(read)
    taken = taken + #ids
  end
end

-- For a script that only reads: a server that takes no writes, as a replica, shows the rest without them.
local function take_in_to_read(now)
  if IS_FAILED or call("XLEN", inbox) == 0 then return end
  check("ZCARD", ready)
  if type(redis.pcall("ZREM", ready, "")) == "number" then take_in(now) end
end
