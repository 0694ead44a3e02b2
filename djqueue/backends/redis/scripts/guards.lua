-- What guards decide; guards.py has the reasons. Needs env, delayed and leases.
--
-- A guard comes as its kind and whole numbers, "once,5,…"; all but the milliseconds of `once` are microseconds, or 0 and 1.
-- A mark is "at first scheduled +id", or just an id. A rule gives when the entry that it accepts is due, or nil; it is given
-- when the entry itself is due.
--
-- One function makes all others, once a guard comes: puts without guards do not pay for them.

local function guards()
  local function read_mark(key)
    local value = call("GET", key)
    if not value then return nil end
    local at, first, scheduled, id = value:match("^(%d+) (%d+) (%S+) %+(.*)$")
    if not at then return {id = value, at = 0, first = 0, is_scheduled = false} end
    return {id = id, at = tonumber(at), first = tonumber(first), is_scheduled = scheduled == "1"}
  end

  local function written(id, at, first, scheduled)
    if at == 0 and not id:find(" +", 1, true) then return id end
    return whole(at) .. " " .. whole(first) .. " " .. scheduled .. " +" .. id
  end

  -- Two milliseconds more: Redis counts whole ones, from a moment before now. A mark that is kept longer has no other effect.
  local function leave_mark(key, id, at, first, scheduled, span)
    local value = written(id, at, first, scheduled)
    call("SET", key, value, "PX", whole(math.floor(span / 1000) + 2))
  end

  local function is_here(id, even_leased)
    return call("HEXISTS", env, id) == 1 and (even_leased or not call("ZSCORE", leases, id))
  end

  -- Gives a delayed entry another moment at which it is due, which is its place as well.
  local function postpone(id, at)
    local envelope = call("HGET", env, id)
    if not parsed(envelope) or call("ZREM", delayed, member(id, envelope)) == 0 then return end
    local number, rest = envelope:match("^(%d+) %d+ (.*)$")
    envelope = place(at, number:sub(MOMENT + 1)) .. " " .. whole(at) .. " " .. rest
    call("HSET", env, id, envelope)
    call("ZADD", delayed, at, member(id, envelope))
  end

  local rules = {}

  function rules.once(key, mark, id, at, now, ttl)
    if mark then return nil end
    call("SET", key, written(id, 0, 0, 0), "PX", ttl)
    return at
  end

  function rules.unique(key, mark, id, at, now, while_running, kept)
    if mark and is_here(mark.id, while_running == 1) then
      call("PEXPIRE", key, whole((math.max(0, mark.at - now) + kept) / 1000))
      return nil
    end
    local due = math.max(now, at)
    leave_mark(key, id, due > now and due or 0, 0, 0, due - now + kept)
    return at
  end

  function rules.debounce(key, mark, id, at, now, window, kept, always_delay, extend, max_wait)
    local function schedule(named, due, first)
      due = math.min(due, FAR)
      leave_mark(key, named, due, first, 1, due - now + kept)
      return due
    end

    if mark and mark.is_scheduled and is_here(mark.id) then
      local due = math.min(now + window, mark.first + max_wait)
      if extend == 1 and mark.at > now and due > mark.at then postpone(mark.id, schedule(mark.id, due, mark.first)) end
      return nil
    end
    if always_delay == 1 or extend == 1 then return schedule(id, now + window, now) end
    if not mark or now - mark.at >= window then
      leave_mark(key, id, now, now, 0, window)
      return at
    end
    return schedule(id, mark.is_scheduled and mark.at > now and mark.at or mark.at + window, now)
  end

  -- When the entry is due, nil if it is refused; and whether it was there before.
  return function(given, key, id, at, now)
    local mark, numbers = read_mark(key), {}
    -- A mark that names the entry itself was left by the call that accepted it, whatever became of it since.
    if mark and mark.id == id then return nil, true end
    for number in given:gmatch("%d+") do numbers[#numbers + 1] = tonumber(number) end
    return rules[given:match("^%a+")](key, mark, id, at, now, unpack(numbers))
  end
end
