-- Which entries may leave a lane; gates.py has the reasons. A part of lanes, as are rates and moves.

local function gate_rules(now)
  local OFFSET = 2147483648 -- makes every rank a number of ten digits
  local rates, read_gates, rules = rate_rules(), {}, {OFFSET = OFFSET}

  local function understood(text)
    local said, gate = cjson.decode(text), {windows = {}}
    gate.ordered, gate.max_run, gate.concurrency = said.o ~= nil, (said.r or 0) + 1, said.m or 0
    gate.min_batch, gate.batch_timeout, gate.parent = (said.l or 0) + 1, said.t or 0, said["in"] or ""
    gate.is_unit = gate.ordered or gate.max_run > 1
    for i, given in ipairs(said.w or {}) do gate.windows[i] = rates.window(unpack(given)) end
    local by = text:find('"by":', 1, true) -- it is written last
    gate.parent_gate = by and text:sub(by + 5, -2) or "{}"
    return gate
  end

  -- A gate that cannot be read lets one leave at a time, in order: that breaks no promise of any gate.
  function rules.gate(text)
    local gate = read_gates[text]
    if not gate then
      local is_understood, found = pcall(understood, text)
      gate = is_understood and found or understood('{"o":1}')
      read_gates[text] = gate
    end
    return gate
  end

  -- Gives a lane another gate: a window that stays keeps what was spent of it, a new window gets the grants of another one.
  function rules.change(lane, text)
    local kept, known, longest = {}, {}, nil
    for _, rate in ipairs(lane.rates) do
      known[rate.window.text] = rate
      if not longest or rate.window.span > longest.window.span then longest = rate end
    end
    for i, window in ipairs(longest and rules.gate(text).windows or {}) do
      kept[i] = known[window.text] or rates.under(rates.copy(lane.rates[i] or longest), window)
    end
    lane.gate, lane.rates = text, kept
  end

  -- From their texts: what was spent of the windows of a gate; nil if that cannot be read.
  function rules.read_rates(text, texts)
    if type(texts) ~= "table" then return nil end
    if #texts == 0 then return texts end
    local windows, found = rules.gate(text).windows, {}
    if #texts ~= #windows then return nil end
    for i, one in ipairs(texts) do
      found[i] = type(one) == "string" and rates.read(one)
      if not found[i] or found[i].window.text ~= windows[i].text then return nil end
    end
    return found
  end

  function rules.written_rates(lane)
    local texts = {}
    for i, rate in ipairs(lane.rates) do texts[i] = rates.written(rate) end
    return texts
  end

  local function rates_of(lane)
    if #lane.rates == 0 then
      for i, window in ipairs(rules.gate(lane.gate).windows) do lane.rates[i] = rates.new(window) end
    end
    return lane.rates
  end

  local function is_full(lane, gate)
    if gate.ordered then return lane.in_flight > 0 end
    return gate.concurrency > 0 and lane.in_flight >= gate.concurrency
  end

  local function remembered_until(lane)
    local latest = lane.not_before
    for _, rate in ipairs(lane.rates) do latest = math.max(latest, rates.expires_at(rate)) end
    return latest
  end

  -- The place of a lane, by its first entry or lane: its rank (nil: there is none), when it fell due, how many wait.
  -- Gives the place, the rank, the moment of a timed one; and whether nothing would be lost with its record.
  function rules.place(lane, rank, due, waiting)
    local gate = rules.gate(lane.gate)
    if lane.paused_reason ~= "" then return "closed", 0, 0, false end
    if not rank then
      local latest = remembered_until(lane)
      if lane.in_flight == 0 and latest > now then return "scheduled", 0, latest, false end
      return "closed", 0, 0, lane.in_flight == 0
    end
    if is_full(lane, gate) then return "closed", 0, 0, false end
    local _, wait = rates.room(rates_of(lane), now)
    local opens = math.max(lane.not_before, now + wait)
    if waiting < gate.min_batch then opens = math.max(opens, due + gate.batch_timeout) end
    if opens > now then return "scheduled", 0, opens, false end
    return gate.parent ~= "" and "queued" or "ready", rank, 0, false
  end

  -- How many may leave in one turn.
  function rules.leaving(lane)
    local gate = rules.gate(lane.gate)
    if lane.paused_reason ~= "" or is_full(lane, gate) or lane.not_before > now then return 0 end
    local most = gate.concurrency > 0 and gate.concurrency - lane.in_flight or gate.max_run
    return math.min(gate.max_run, most, (rates.room(rates_of(lane), now)))
  end

  function rules.left(lane, number, turn)
    lane.in_flight, lane.turn = lane.in_flight + number, turn
    rates.spend(rates_of(lane), number, now)
  end

  -- The rates of a lane if one entry that left at a moment counts from another moment on; false if they have forgotten it.
  function rules.deferred(lane, left_at, to)
    local moved = {}
    for i, rate in ipairs(rates_of(lane)) do
      moved[i] = rates.moved(rate, left_at, to, now)
      if not moved[i] then return false end
    end
    return moved
  end

  return rules
end
