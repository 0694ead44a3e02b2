-- Which entries may leave a lane; gates.py has the reasons. A part of lanes, as are windows and moves.

local function gate_rules(now)
  local OFFSET = 2147483648 -- makes every rank a number of ten digits
  local windows, read_gates, rules = window_rules(), {}, {OFFSET = OFFSET}

  local function understood(text)
    local said, gate = cjson.decode(text), {windows = {}}
    gate.ordered, gate.max_run, gate.concurrency = said.o ~= nil, (said.r or 0) + 1, said.m or 0
    gate.min_batch, gate.batch_timeout, gate.parent = (said.l or 0) + 1, said.t or 0, said["in"] or ""
    gate.is_unit = gate.ordered or gate.max_run > 1
    for i, given in ipairs(said.w or {}) do gate.windows[i] = windows.window(unpack(given)) end
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

  -- The logs under another gate: a window that stays keeps its log, a new window gets the log of another one.
  function rules.logs_for(gate, before, logs)
    local kept, known, longest = {}, {}, 0
    for i, window in ipairs(before.windows) do
      known[window.text] = logs[i]
      if longest == 0 or window.span > before.windows[longest].span then longest = i end
    end
    for i, window in ipairs(gate.windows) do
      kept[i] = known[window.text] or windows.copy(logs[i] or logs[longest] or windows.log())
    end
    return kept
  end

  local function is_full(lane, gate)
    if gate.ordered then return lane.in_flight > 0 end
    return gate.concurrency > 0 and lane.in_flight >= gate.concurrency
  end

  local function narrowest(lane, gate)
    local free, wait = math.huge, 0
    for i, window in ipairs(gate.windows) do
      local own, until_next = windows.capacity(window, lane.logs[i], now)
      if own < free or own == free and until_next > wait then free, wait = own, until_next end
    end
    return free, wait
  end

  local function remembered_until(lane, gate)
    local latest = lane.not_before
    for i, window in ipairs(gate.windows) do
      local newest = lane.logs[i].newest
      if newest > 0 then latest = math.max(latest, newest + 2 * window.span) end
    end
    return latest
  end

  -- The place of a lane, by its first entry or lane: its rank (nil: there is none), when it fell due, how many wait.
  -- Gives the place, the rank, the moment of a timed one; and whether nothing would be lost with its record.
  function rules.place(lane, rank, due, waiting)
    local gate = rules.gate(lane.gate)
    if lane.paused_reason ~= "" then return "closed", 0, 0, false end
    if not rank then
      local latest = remembered_until(lane, gate)
      if lane.in_flight == 0 and latest > now then return "scheduled", 0, latest, false end
      return "closed", 0, 0, lane.in_flight == 0
    end
    if is_full(lane, gate) then return "closed", 0, 0, false end
    local _, wait = narrowest(lane, gate)
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
    return math.min(gate.max_run, most, (narrowest(lane, gate)))
  end

  function rules.left(lane, number, turn)
    lane.in_flight, lane.turn = lane.in_flight + number, turn
    for i, window in ipairs(rules.gate(lane.gate).windows) do
      windows.granted(window, lane.logs[i], number, now)
    end
  end

  -- Counts one entry that left at a moment from another moment on; false if the windows have forgotten it.
  function rules.deferred(lane, left_at, to)
    local logs = {}
    for i, window in ipairs(rules.gate(lane.gate).windows) do
      logs[i] = windows.moved(window, lane.logs[i], left_at, to, now)
      if not logs[i] then return false end
    end
    return logs
  end

  return rules
end
