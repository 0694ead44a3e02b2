-- Sliding windows; windows.py has the reasons.
--
-- A log is a table of text (twelve bytes for each grant: its moment and its number), sum (of these numbers), last, warm, and
-- newest (the moment of the last grant, even if the text has lost it). Old grants are dropped from the front at the next
-- grant, so a look reads only grants that became too old since the last one; for another window they may still count.

local function window_rules()
  local FINEST, BYTES, FORM = 1000, 12, ">dI4"
  local rules = {}

  -- From limit, microseconds, 1 for moderate + 2 for elastic, buffer.
  function rules.window(limit, span, ways, buffer)
    return {
      limit = limit, span = span, buffer = buffer, is_elastic = ways >= 2,
      rank = {limit / span, limit, ways % 2 == 1 and 0 or 1, ways >= 2 and 1 or 0, -buffer},
      spacing = ways % 2 == 1 and limit > 1 and math.ceil(span / limit) or 0,
      grain = limit > FINEST and math.max(1, math.floor(span / FINEST)) or 1,
      text = table.concat({whole(limit), whole(span), whole(ways), whole(buffer)}, " "),
    }
  end

  -- Makes the log of another window the log of this one.
  function rules.adopt(window, log)
    if window.spacing > 0 then log.last = log.newest end
    return log
  end

  function rules.log()
    return {text = "", sum = 0, last = 0, warm = 0, newest = 0}
  end

  -- Whether a window allows less than another.
  function rules.is_stricter(window, other)
    for i, own in ipairs(window.rank) do
      if own ~= other.rank[i] then return own < other.rank[i] end
    end
    return false
  end

  function rules.copy(log)
    return {text = log.text, sum = log.sum, last = log.last, warm = log.warm, newest = log.newest}
  end

  local function grant_at(log, place)
    return struct.unpack(FORM, log.text, place)
  end

  local function drop_old(window, log, now)
    local since, place = now - window.span, 1
    while place < #log.text do
      local at, number = grant_at(log, place)
      if at > since then break end
      log.sum, place = log.sum - number, place + BYTES
    end
    if place > 1 then log.text = log.text:sub(place) end
  end

  -- Microseconds until that many grants are too old to count.
  local function until_gone(window, log, missing, now)
    for place = 1, #log.text, BYTES do
      local at, number = grant_at(log, place)
      missing = missing - number
      if missing <= 0 then return at + window.span - now end
    end
    return 0
  end

  local function until_next(window, log, left, spaced, now)
    local missing = window.buffer + 1 - left
    if window.is_elastic and log.warm >= window.limit and missing > 0 then
      return math.min(spaced, until_gone(window, log, missing, now))
    end
    return spaced
  end

  -- How many may leave now; if none, in how many microseconds one may, and why.
  function rules.capacity(window, log, now)
    if window.limit == 0 then return 0, -1, "limited" end
    log = rules.copy(log)
    drop_old(window, log, now)
    local left = window.limit - log.sum
    if window.spacing == 0 then
      if left > 0 then return left, 0, "" end
      return 0, until_gone(window, log, 1 - left, now), "limited"
    end
    if window.is_elastic and log.warm >= window.limit and left > window.buffer then return left - window.buffer, 0, "" end
    local spaced = math.max(0, log.last + window.spacing - now)
    if left <= 0 then
      local gone = until_gone(window, log, 1 - left, now)
      return 0, math.max(gone, until_next(window, log, left, spaced, now)), "limited"
    end
    if spaced == 0 then return 1, 0, "" end
    return 0, until_next(window, log, left, spaced, now), "spaced"
  end

  -- How many of its slots are taken.
  function rules.used(window, log, now)
    log = rules.copy(log)
    drop_old(window, log, now)
    return log.sum
  end

  -- Notes that entries have left now.
  function rules.granted(window, log, number, now)
    drop_old(window, log, now)
    local ends, same = #log.text - BYTES, 0
    if ends >= 0 then
      local at, had = grant_at(log, ends + 1)
      if math.floor(at / window.grain) == math.floor(now / window.grain) then
        log.text, same = log.text:sub(1, ends), had
      end
    end
    log.text, log.sum = log.text .. struct.pack(FORM, now, same + number), log.sum + number
    log.last, log.newest = window.spacing > 0 and now or 0, now
    log.warm = window.is_elastic and log.warm + number or 0
  end

  -- Notes that some grants of a moment were not used after all.
  function rules.returned(window, log, number, granted_at)
    local kept, newest, grain, asked = {}, 0, math.floor(granted_at / window.grain), number
    for place = 1, #log.text, BYTES do
      local at, had = grant_at(log, place)
      local back = math.floor(at / window.grain) == grain and math.min(number, had) or 0
      log.sum, number = log.sum - back, number - back
      if had > back then kept[#kept + 1], newest = struct.pack(FORM, at, had - back), at end
    end
    log.text = table.concat(kept)
    if log.last == granted_at then log.last = newest end
    log.warm = window.is_elastic and math.max(0, log.warm - asked) or 0
  end

  -- The log if one grant of a moment counts from another moment on; nil if it does not count any more.
  function rules.moved(window, log, granted_at, to, now)
    local grain, is_young, grants = math.floor(granted_at / window.grain), false, {}
    log = rules.copy(log)
    drop_old(window, log, now)
    for place = 1, #log.text, BYTES do
      local at, number = grant_at(log, place)
      if not is_young and math.floor(at / window.grain) == grain then is_young, number = true, number - 1 end
      if number > 0 then grants[#grants + 1] = {at, number} end
    end
    if not is_young then return nil end
    grants[#grants + 1] = {to, 1}
    table.sort(grants, function(one, other) return one[1] < other[1] end)
    for i, grant in ipairs(grants) do grants[i] = struct.pack(FORM, grant[1], grant[2]) end
    log.text, log.newest = table.concat(grants), math.max(log.newest, to)
    if log.last == granted_at then log.last = to end
    return log
  end

  return rules
end
