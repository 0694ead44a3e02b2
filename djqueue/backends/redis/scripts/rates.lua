-- Rates: windows and what was spent of them; flow/rates.py has the reasons, and the text in which a rate is kept.
--
-- A rate is a table of the numbers of its text, their sum as `total`, and `log`: the grants as they are in the text, 28 characters for
-- each. Old grants are dropped from the front at the next grant, so a look reads only grants that became too old since the last one;
-- for another window they may still count.

local function rate_rules()
  local FINEST, LENGTH, PAIR, CLAIMED_FOR = 1000, 28, "%016.0f %010.0f ", 60000000
  local WINDOW, LONGEST = "^(%d+) (%d+) (%d+) (%d+) (%d+)$", 200
  local HEAD, WRITTEN = "^(%d+ %d+ %d+ %d+ %d+) (%d+) (%d) (%d+) (%d+) (%d+)|()", "%s %.0f %s %.0f %.0f %.0f|%s"
  local rules, windows = {}, {}

  -- A window by its text: its limit, microseconds with its margin, 1 for moderate + 2 for elastic, buffer, and microseconds of its
  -- margin.
  local function window_of(text)
    local window = windows[text]
    if window then return window end
    local limit, span, ways, buffer = text:match(WINDOW)
    limit, span, ways = tonumber(limit), tonumber(span), tonumber(ways)
    window = {
      text = text, limit = limit, span = span, ways = ways, buffer = tonumber(buffer), is_elastic = ways >= 2,
      spacing = ways % 2 == 1 and limit > 1 and math.ceil(span / limit) or 0,
      grain = limit > FINEST and math.max(1, math.floor(span / FINEST)) or 1,
    }
    windows[text] = window
    return window
  end

  function rules.window(limit, span, ways, buffer, margin)
    return window_of(string.format("%.0f %.0f %.0f %.0f %.0f", limit, span, ways, buffer, margin or 0))
  end

  -- Gives a rate another window: its grants count by this one.
  function rules.under(rate, window)
    rate.window = window
    if window.spacing > 0 and rate.log ~= "" then rate.last = tonumber(rate.log:sub(-LENGTH, -13)) end
    return rate
  end

  function rules.new(window)
    return {window = window, asked = 0, fixed = "0", last = 0, warm = 0, total = 0, log = ""}
  end

  function rules.copy(rate)
    local copy = {}
    for name, value in pairs(rate) do copy[name] = value end
    return copy
  end

  function rules.written(rate)
    return string.format(WRITTEN, rate.window.text, rate.asked, rate.fixed, rate.last, rate.warm, rate.total, rate.log)
  end

  -- The rate of a text; nil if that cannot be read.
  function rules.read(text)
    local window, asked, fixed, last, warm, total, first = text:match(HEAD)
    if not first or first > LONGEST or (#text - first + 1) % LENGTH > 0 or text:find("[^%d ]", first) then return nil end
    return {
      window = window_of(window), asked = tonumber(asked), fixed = fixed, last = tonumber(last), warm = tonumber(warm),
      total = tonumber(total), log = text:sub(first),
    }
  end

  local function grant_at(rate, place)
    return tonumber(rate.log:sub(place, place + 15)) or 0, tonumber(rate.log:sub(place + 17, place + 26)) or 0
  end

  -- The place in the log from which on grants are young, and how many were granted there.
  local function young(rate, now)
    local since, place, number = now - rate.window.span, 1, rate.total
    while place < #rate.log do
      local at, had = grant_at(rate, place)
      if at > since then break end
      number, place = number - had, place + LENGTH
    end
    return place, number
  end

  -- Microseconds until that many grants, from a place on, are too old to count.
  local function until_gone(rate, place, missing, now)
    for i = place, #rate.log, LENGTH do
      local at, number = grant_at(rate, i)
      missing = missing - number
      if missing <= 0 then return at + rate.window.span - now end
    end
    return 0
  end

  local function until_next(rate, place, left, spaced, now)
    local window = rate.window
    local missing = window.buffer + 1 - left
    if window.is_elastic and rate.warm >= window.limit and missing > 0 then
      return math.min(spaced, until_gone(rate, place, missing, now))
    end
    return spaced
  end

  -- How many may leave now; if none, in how many microseconds one may, and why.
  function rules.capacity(rate, now)
    local window = rate.window
    if window.limit == 0 then return 0, -1, "limited" end
    local place, taken = young(rate, now)
    local left = window.limit - taken
    if window.spacing == 0 then
      if left > 0 then return left, 0, "" end
      return 0, until_gone(rate, place, 1 - left, now), "limited"
    end
    if window.is_elastic and rate.warm >= window.limit and left > window.buffer then return left - window.buffer, 0, "" end
    local spaced = math.max(0, rate.last + window.spacing - now)
    if left <= 0 then
      local gone = until_gone(rate, place, 1 - left, now)
      return 0, math.max(gone, until_next(rate, place, left, spaced, now)), "limited"
    end
    if spaced == 0 then return 1, 0, "" end
    return 0, until_next(rate, place, left, spaced, now), "spaced"
  end

  -- What several rates leave: how many may leave, and if none, in how many microseconds one may.
  function rules.room(rates, now)
    local free, wait = math.huge, 0
    for _, rate in ipairs(rates) do
      local own, until_next = rules.capacity(rate, now)
      if own < free or own == free and until_next > wait then free, wait = own, until_next end
    end
    return free, wait
  end

  -- Lets entries leave now by all of these rates.
  function rules.spend(rates, number, now)
    if number == 0 then return end
    for _, rate in ipairs(rates) do
      local window, place, taken = rate.window, young(rate, now)
      local ends, same = #rate.log - LENGTH, 0
      if ends >= place - 1 then
        local at, had = grant_at(rate, ends + 1)
        if math.floor(at / window.grain) == math.floor(now / window.grain) then ends, same = ends - LENGTH, had end
      end
      rate.log = rate.log:sub(place, ends + LENGTH) .. string.format(PAIR, now, same + number)
      rate.total, rate.last = taken + number, window.spacing > 0 and now or 0
      rate.warm = window.is_elastic and rate.warm + number or 0
    end
  end

  -- The rate if one grant of a moment counts from another moment on; nil if it does not count any more.
  function rules.moved(rate, granted_at, to, now)
    local grain, first, is_young, is_out, grants = math.floor(granted_at / rate.window.grain), young(rate, now), false, false, {}
    for place = 1, #rate.log, LENGTH do
      local at, number = grant_at(rate, place)
      if math.floor(at / rate.window.grain) == grain then
        is_young, number, is_out = is_young or place >= first, is_out and number or number - 1, true
      end
      if number > 0 then grants[#grants + 1] = {at, number} end
    end
    if not is_young then return nil end
    grants[#grants + 1] = {to, 1}
    table.sort(grants, function(one, other) return one[1] < other[1] or one[1] == other[1] and one[2] < other[2] end)
    for i, grant in ipairs(grants) do grants[i] = string.format(PAIR, grant[1], grant[2]) end
    rate = rules.copy(rate)
    rate.log = table.concat(grants)
    if rate.last == granted_at then rate.last = to end
    return rate
  end

  -- The moment from which on what was spent does not matter.
  function rules.expires_at(rate)
    return rate.log == "" and 0 or tonumber(rate.log:sub(-LENGTH, -13)) + 2 * rate.window.span
  end

  local function rank(window)
    local order, is_even = window.limit / window.span, window.ways % 2 == 1
    return {order, window.limit, is_even and 0 or 1, window.is_elastic and 1 or 0, -window.buffer}
  end

  -- Whether a window allows less than another.
  local function is_stricter(window, other)
    local theirs = rank(other)
    for i, own in ipairs(rank(window)) do
      if own ~= theirs[i] then return own < theirs[i] end
    end
    return false
  end

  -- The rate as it holds for a user with this window.
  function rules.agreed(rate, window, now)
    rate = rate or rules.new(window)
    if rate.window.text ~= window.text then
      local is_in_use = now - rate.asked < math.min(CLAIMED_FOR, 2 * rate.window.span)
      if rate.fixed == "1" or is_in_use and is_stricter(rate.window, window) then return rate end
      rules.under(rate, window)
    end
    rate.asked = now
    return rate
  end

  return rules
end
