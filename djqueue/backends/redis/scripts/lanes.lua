-- The lanes of a queue: what waits in them, and where they are, as in gates.py and the lanes in memory.
-- All is within one function, so that a script defines it only if an entry is in a lane.
--
-- wait   all that waits in lanes: number of the lane (12 digits), rank (10), place, 1 if it was lost once else 0, id.
-- aged   all that waits in lanes, by age: place, id.
-- lanes_ready lanes whose first may leave, score: its rank; turn (16 digits), name.
-- lanes_scheduled lanes that open by themselves, score: when; name.
-- lanes_queued lanes in a parent: number of the parent (12 digits), rank (10), turn (16), name.
-- lanes  by name: what is known of each. names: these names, in order.
-- out    by id: the lane that an entry has left and the parent of that lane, until it is settled.
--
-- No key is made of a name, so all are known before a script runs.

local function lane_rules(now)
  -- Where in a member of wait or line these end; the flag is what stands before the id.
  local NUMBER, RANK, TURN, LINED, FLAG = 12, 10, 16, 38, WAITING
  local RATE_UNREADABLE = "its rate cannot be read: an older version wrote it, or it was changed by hand"

  -- with: rates gates moves
  local gates, known, touched, turns, rules = gate_rules(now), {}, {}, nil, {}
  local touch
  local is_checked = false
  -- Whatever changes something begins with this.
  function rules.check()
    if is_checked then return end
    is_checked = true
    check("ZCARD", wait, aged, lanes_ready, lanes_scheduled, lanes_queued, names)
    check("HLEN", lanes)
  end

  local function first_of(line_key, number, count)
    return call("ZRANGEBYLEX", line_key, "[" .. number, "(" .. number .. ":", "LIMIT", 0, count)
  end

  local function ranked(rank) return string.format("%010.0f", rank + gates.OFFSET) end

  local function unranked(digits) return tonumber(digits) - gates.OFFSET end

  -- Records.

  local function read(name, value)
    local lane = {name = name}
    lane.number, lane.gate, lane.seq, lane.in_flight, lane.turn, lane.not_before, lane.paused_reason, lane.where, lane.rank, lane.at,
      lane.queued_in, lane.lined, lane.waiting, lane.head, lane.rates = cmsgpack.unpack(value)
    lane.stood_at, lane.rates = lane.turn, gates.read_rates(lane.gate, lane.rates)
    return lane
  end

  -- A record that cannot be read counts as none: its lane begins again, and a sweep finds the entries in it. If it is unknown what
  -- has left it, it waits for an operator.
  local function read_if_sound(name, value)
    local is_sound, lane = pcall(read, name, value)
    if not is_sound or type(lane.number) ~= "string" then return nil end
    if not lane.rates then
      lane.rates, lane.paused_reason = {}, RATE_UNREADABLE
      touch(lane)
    end
    return lane
  end

  local function written(lane)
    return cmsgpack.pack(lane.number, lane.gate, lane.seq, lane.in_flight, lane.turn, lane.not_before, lane.paused_reason, lane.where,
      lane.rank, lane.at, lane.queued_in, lane.lined, lane.waiting, lane.head, gates.written_rates(lane))
  end

  local function get(name)
    if known[name] == nil then
      local value = call("HGET", lanes, name)
      known[name] = value and read_if_sound(name, value)
    end
    return known[name] or nil
  end
  rules.get = get

  local function get_all(names)
    local wanted = {}
    for _, name in ipairs(names) do
      if known[name] == nil then wanted[#wanted + 1], known[name] = name, false end
    end
    if #wanted == 0 then return end
    for i, value in ipairs(call("HMGET", lanes, unpack(wanted))) do known[wanted[i]] = value and read_if_sound(wanted[i], value) end
  end

  -- A value that is no number, or has too many digits, was written by hand: seconds are large enough.
  local function next_turn()
    turns = turns or tonumber(call("HGET", meta, "turn") or 0)
    if not turns or turns < 0 or turns >= FAR then turns = now / 1000000 end
    turns = turns + 1
    return turns
  end

  -- A new lane is placed behind waiting lanes, else new lanes could delay them for ever.
  local function get_or_make(name)
    local lane = get(name)
    if lane then return lane end
    rules.check()
    local number = string.format("%012.0f", count_up("lane", 1, now / 1000000))
    known[name] = {
      name = name, number = number, gate = "{}", seq = -1, in_flight = 0, turn = next_turn(), not_before = 0, paused_reason = "",
      where = "closed", rank = 0, at = 0, queued_in = "", lined = 0, waiting = 0, head = "", rates = {},
    }
    step_in(names, name, 0)
    return known[name]
  end

  local function keep(lane)
    rules.check()
    if not lane.is_touched then touched[#touched + 1], lane.is_touched = lane, true end
  end

  function touch(lane)
    keep(lane)
    lane.is_stale = true
  end
  rules.touch = touch

  -- The gate of the entry that was put last counts: the entry with the highest number.
  local function define(name, text, seq)
    local lane = get_or_make(name)
    if seq >= lane.seq and text ~= lane.gate or lane.seq < 0 then
      gates.change(lane, text)
      touch(lane)
    end
    lane.seq = math.max(seq, lane.seq)
    keep(lane)
    return lane
  end

  local function outer_of(lane)
    local gate = gates.gate(lane.gate)
    return gate.parent ~= "" and (get(gate.parent) or define(gate.parent, gate.parent_gate, lane.seq)) or nil
  end

  -- The places of lanes.

  local function first_in_line(outer)
    if outer.first then return outer.first end
    make(lanes_queued)
    outer.first = first_of(lanes_queued, outer.number, 1)[1]
    if outer.first and not get(outer.first:sub(LINED + 1)) then -- left by a record that could not be read
      step_out(lanes_queued, outer.first)
      outer.first, outer.lined = nil, outer.lined - 1
      return first_in_line(outer)
    end
    if not outer.first then outer.lined = 0 end
    return outer.first
  end

  -- Rank, moment and number of what would leave first: an entry, or of a lane with a line the first lane there.
  local function head_of(lane)
    local first_lane = lane.lined > 0 and first_in_line(lane)
    if first_lane then return unranked(first_lane:sub(NUMBER + 1, NUMBER + RANK)), 0, math.huge end
    if not lane.head then
      make(wait)
      local first = first_of(wait, lane.number, 1)[1]
      lane.head = first and first:sub(NUMBER + 1, FLAG - 1) or ""
    end
    if lane.head == "" then return nil end
    return unranked(lane.head:sub(1, RANK)), tonumber(lane.head:sub(RANK + 1, RANK + MOMENT)), lane.waiting
  end

  local function turn_name(lane, turn)
    return string.format("%016.0f", turn) .. lane.name
  end

  local function line_name(lane, turn)
    return get(lane.queued_in).number .. ranked(lane.rank) .. turn_name(lane, turn)
  end

  local leave_place = {
    closed = function() end,
    ready = function(lane) step_out(lanes_ready, turn_name(lane, lane.stood_at)) end,
    scheduled = function(lane) step_out(lanes_scheduled, lane.name) end,
    queued = function(lane)
      local outer, name = get(lane.queued_in), line_name(lane, lane.stood_at)
      step_out(lanes_queued, name)
      outer.lined, outer.first = outer.lined - 1, outer.first ~= name and outer.first
      touch(outer)
    end,
  }

  local take_place = {
    closed = function() end,
    ready = function(lane) step_in(lanes_ready, turn_name(lane, lane.turn), lane.rank) end,
    scheduled = function(lane) step_in(lanes_scheduled, lane.name, lane.at) end,
    queued = function(lane)
      local outer, name = outer_of(lane), line_name(lane, lane.turn)
      step_in(lanes_queued, name, 0)
      local is_behind = outer.first and name:sub(1, LINED) > outer.first:sub(1, LINED)
      outer.lined, outer.first = outer.lined + 1, is_behind and outer.first
      touch(outer)
    end,
  }

  -- Puts a lane where it belongs: the only place that does.
  local function place_lane(lane)
    lane.is_stale = false
    local rank, due, waiting = head_of(lane)
    local where, new_rank, at, is_idle = gates.place(lane, rank, due, waiting)
    local in_line = where == "queued" and outer_of(lane).name or ""
    local is_same = where == lane.where and new_rank == lane.rank and at == lane.at and in_line == lane.queued_in
    if not is_same or (where ~= "closed" and where ~= "scheduled" and lane.turn ~= lane.stood_at) then
      leave_place[lane.where](lane)
      lane.where, lane.rank, lane.at, lane.queued_in = where, new_rank, at, in_line
      take_place[where](lane)
    end
    lane.stood_at = lane.turn
    if is_idle then known[lane.name] = false end
  end

  -- Lanes that have a parent first, as they may move the parent.
  local function place_stale()
    for _, is_inner in ipairs({true, false}) do
      for _, lane in ipairs(touched) do
        if lane.is_stale and (not is_inner or lane.queued_in ~= "" or gates.gate(lane.gate).parent ~= "") then place_lane(lane) end
      end
    end
  end

  -- Must end every script that changed anything here.
  function rules.finish()
    place_stale()
    local kept, forgotten = {}, {}
    for _, lane in ipairs(touched) do
      if known[lane.name] == lane then
        kept[#kept + 1] = lane.name
        kept[#kept + 1] = written(lane)
      elseif not known[lane.name] then
        forgotten[#forgotten + 1] = lane.name
        step_out(names, lane.name)
      end
    end
    in_parts("HDEL", lanes, forgotten)
    for _, line_key in ipairs({wait, aged, lanes_ready, lanes_scheduled, lanes_queued, names}) do make(line_key) end
    in_parts("HSET", lanes, kept)
    if turns then call("HSET", meta, "turn", whole(turns)) end
  end

  -- Entries arrive and leave.

  local function place_in(lane_number, envelope, priority, lost, id)
    return lane_number .. ranked(-priority) .. envelope:sub(1, DIGITS) .. (lost == "0" and "0" or "1") .. id
  end

  -- An entry waits in its lane, at its place.
  function rules.enter(id, envelope)
    local name, text, priority, lost = lane_of(envelope)
    local seq, gate = tonumber(envelope:sub(MOMENT + 1, DIGITS)), gates.gate(text)
    local lane = define(name, text, seq)
    if gate.parent ~= "" then define(gate.parent, gate.parent_gate, seq) end
    local stands = place_in(lane.number, envelope, priority, lost, id)
    local head = stands:sub(NUMBER + 1, FLAG - 1)
    step_in(wait, stands, 0)
    step_in(aged, member(id, envelope), 0)
    lane.waiting = lane.waiting + 1
    if not lane.head or lane.head == "" or head < lane.head then
      lane.head = lane.head and head
      touch(lane)
    elseif gates.gate(lane.gate).min_batch > 1 then
      touch(lane)
    end
  end

  -- An entry that may wait in its lane does no longer; whether it did.
  function rules.leave(id, envelope)
    rules.check()
    make(aged)
    if call("ZREM", aged, member(id, envelope)) == 0 then return false end
    local name, _, priority, lost = lane_of(envelope)
    local lane = get(name)
    if not lane then return true end
    local stands = place_in(lane.number, envelope, priority, lost, id)
    step_out(wait, stands)
    lane.waiting = lane.waiting - 1
    if lane.head == stands:sub(NUMBER + 1, FLAG - 1) then lane.head = false end
    touch(lane)
    return true
  end

  -- Whether an entry waits where its lane looks for it.
  function rules.stands(id, envelope)
    local name, _, priority, lost = lane_of(envelope)
    local lane = get(name)
    make(aged)
    make(wait)
    if lane and call("ZSCORE", wait, place_in(lane.number, envelope, priority, lost, id)) then
      return call("ZSCORE", aged, member(id, envelope))
    end
    call("ZREM", aged, member(id, envelope))
    return false
  end

  -- An entry that had left its lane is settled, by what `out` has of it.
  function rules.settled(had_left, count)
    for _, name in ipairs({cmsgpack.unpack(had_left)}) do
      local lane = get(name)
      if lane then
        lane.in_flight = math.max(0, lane.in_flight - count)
        keep(lane)
        lane.is_stale = lane.is_stale or lane.where == "closed" -- elsewhere it does not matter how many are out
      end
    end
  end

  -- The value of `out` for an entry, from its envelope, if `out` cannot be read.
  function rules.left_by(envelope)
    local name, text = lane_of(envelope or "")
    local within = text and gates.gate(text).parent or ""
    return within ~= "" and cmsgpack.pack(name, within) or cmsgpack.pack(name or "")
  end

  -- An entry that left at a moment counts from another one on; whether that could be done.
  function rules.defer(had_left, left_at, to)
    local changed = {}
    for _, name in ipairs({cmsgpack.unpack(had_left)}) do
      local lane = get(name)
      local rates = lane and gates.deferred(lane, left_at, to)
      if not rates then return false end
      changed[#changed + 1] = {lane, rates}
    end
    for _, change in ipairs(changed) do
      change[1].rates = change[2]
      touch(change[1])
    end
    return true
  end

  -- A lane is held back with an entry that returns: until a moment, or until an operator opens it ("pause"). For the sake of a
  -- rate ("lane", not "order") that is the lane with the windows: itself, or the one that it is within.
  function rules.hold(id, envelope, how, moment)
    local lane = get_or_make((lane_of(envelope)))
    if how == "pause" then
      lane.paused_reason = id .. " failed"
    else
      local outer = how == "lane" and #gates.gate(lane.gate).windows == 0 and outer_of(lane)
      if outer and #gates.gate(outer.gate).windows > 0 then lane = outer end
      lane.not_before = math.max(lane.not_before, moment)
    end
    touch(lane)
  end

  function rules.pause(name, why)
    local lane = get_or_make(name)
    lane.paused_reason = why
    touch(lane)
  end

  -- Opens a lane; whether it was shut.
  function rules.resume(name)
    local lane = get(name)
    if not lane or (lane.paused_reason == "" and lane.not_before <= now) then return false end
    lane.paused_reason, lane.not_before = "", 0
    touch(lane)
    return true
  end

  function rules.record(name)
    local lane = get(name)
    if not lane then return nil end
    return {
      name, lane.where, lane.waiting, lane.in_flight, whole(lane.where == "scheduled" and lane.at or 0), lane.paused_reason,
      gates.gate(lane.gate).parent, lane.gate,
    }
  end

  -- Places timed lanes again when their moment has come.
  function rules.wake(limit)
    local due = call("ZRANGEBYSCORE", lanes_scheduled, "-inf", now, "LIMIT", 0, limit)
    get_all(due)
    for _, name in ipairs(due) do
      local lane = get(name)
      if lane then touch(lane) end
      if not lane or lane.where ~= "scheduled" then step_out(lanes_scheduled, name) end
    end
    place_stale()
    make(wait) -- with what entered before, as turns read it
  end

  -- with: turns

  return rules
end

local kept_rules

-- The rules of lanes, defined when a script first needs them.
local function laned(now)
  kept_rules = kept_rules or lane_rules(now)
  return kept_rules
end

local function finish_lanes()
  if kept_rules then kept_rules.finish() end
end

-- Entries that had left lanes let them know; gives how many.
local function come_back(ids, now)
  if #ids == 0 or call("EXISTS", out) == 0 then return 0 end
  laned(now).check()
  local count, counts = 0, {}
  for i, had_left in ipairs(call("HMGET", out, unpack(ids))) do
    if had_left then
      local is_sound, name = pcall(cmsgpack.unpack, had_left)
      if not is_sound or type(name) ~= "string" then had_left = laned(now).left_by(call("HGET", env, ids[i])) end
      count, counts[had_left] = count + 1, (counts[had_left] or 0) + 1
    end
  end
  for had_left, of_these in pairs(counts) do laned(now).settled(had_left, of_these) end
  if count > 0 then call("HDEL", out, unpack(ids)) end
  return count
end
