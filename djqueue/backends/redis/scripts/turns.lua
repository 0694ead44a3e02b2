  -- Which lane has its turn. A part of lanes.

  function rules.turns()
    local turns, taken, fronts, at, is_whole, again = {}, {}, {}, 1, false, {}

    local function read_fronts(count)
      make(lanes_ready)
      fronts, at, again = call("ZRANGE", lanes_ready, 0, count - 1, "WITHSCORES"), 1, {}
      is_whole = #fronts < 2 * count
      local there, stood = {}, {}
      for i = 1, #fronts, 2 do there[#there + 1] = fronts[i]:sub(TURN + 1) end
      get_all(there)
      for i, name in ipairs(there) do
        if get(name) then
          stood[#stood + 1] = name
          stood[#stood + 1] = fronts[2 * i]
        else
          step_out(lanes_ready, fronts[2 * i - 1]) -- left by a record that could not be read
        end
      end
      fronts = stood
    end

    -- The first of the lanes that are open again after their turn in this script.
    local function first_again()
      local first
      for i, lane in ipairs(again) do
        if not first or lane.rank < again[first].rank or lane.rank == again[first].rank and lane.turn < again[first].turn then
          first = i
        end
      end
      return first
    end

    -- The open lane that has its turn; `count` are read at once. A lane that is open again comes behind its equals.
    function turns.first_ready(count)
      local second = first_again()
      local is_before = fronts[at] and not (second and again[second].rank < tonumber(fronts[at + 1]))
      if not fronts[at] and not is_whole then
        read_fronts(count)
        second, is_before = nil, fronts[at] ~= nil
      end
      if is_before then return get(fronts[at]) end
      return second and again[second]
    end

    -- A lane and its parent; for a parent, the first lane that is queued in it.
    local function chain_of(lane)
      local first = lane.lined > 0 and first_in_line(lane)
      if first then lane = get(first:sub(LINED + 1)) end
      return lane, outer_of(lane)
    end

    function turns.is_throttled(lane)
      local inner, outer = chain_of(lane)
      return #gates.gate(inner.gate).windows > 0 or (outer and #gates.gate(outer.gate).windows > 0)
    end

    -- Takes entries from the head; one that was lost once leaves alone.
    local function take_first(lane, number)
      if taken[lane] then make(wait) end
      taken[lane] = true
      local first, ids = first_of(wait, lane.number, number + 1), {}
      for i = 1, math.min(#first, number) do
        local stands = first[i]
        if i > 1 and (stands:sub(FLAG, FLAG) == "1" or first[1]:sub(FLAG, FLAG) == "1") then break end
        ids[i] = stands:sub(FLAG + 1)
        step_out(aged, stands:sub(NUMBER + RANK + 1, FLAG - 1) .. ids[i])
      end
      if #ids > 1 then
        call("ZREMRANGEBYLEX", wait, "[" .. first[1], "[" .. first[#ids])
      elseif #ids == 1 then
        step_out(wait, first[1])
      end
      local next = first[#ids + 1]
      lane.waiting, lane.head = lane.waiting - #ids, next and next:sub(NUMBER + 1, FLAG - 1) or ""
      return ids
    end

    -- Lets a run leave the lane that has its turn: ids, what `out` has of them, whether they are one unit.
    function turns.take_turn(lane, most)
      rules.check()
      local inner, outer = chain_of(lane)
      local number = math.min(most, gates.leaving(inner), outer and gates.leaving(outer) or math.huge)
      local ids, turn = number > 0 and take_first(inner, number) or {}, next_turn()
      if fronts[at] == lane.name then at = at + 2 else table.remove(again, (first_again())) end
      for _, one in ipairs({inner, outer}) do
        gates.left(one, #ids, turn)
        touch(one)
        place_lane(one)
        if one.where == "ready" then again[#again + 1] = one end
      end
      return ids, outer and cmsgpack.pack(inner.name, outer.name) or cmsgpack.pack(inner.name), gates.gate(inner.gate).is_unit
    end

    return turns
  end
