  -- Changes of lines that are kept back and made together, as a script moves many lanes at once. They are made (`make`) before a
  -- line is read.
  local changes = {}

  -- One command for every thousand pairs: Lua cannot pass many more.
  local function in_parts(verb, key, args)
    for first = 1, #args, 2000 do call(verb, key, unpack(args, first, math.min(first + 1999, #args))) end
  end

  local function change(line_key)
    local made = changes[line_key] or {gone = {}, come = {}, order = {}}
    changes[line_key] = made
    return made
  end

  local function step_in(line_key, name, score)
    local made = change(line_key)
    made.come[name], made.order[#made.order + 1] = score, name
  end

  local function step_out(line_key, name)
    local made = change(line_key)
    made.come[name], made.gone[#made.gone + 1] = nil, name
  end

  local function make(line_key)
    local made, come = changes[line_key], {}
    if not made then return end
    changes[line_key] = nil
    for _, name in ipairs(made.order) do
      if made.come[name] then
        come[#come + 1] = made.come[name]
        come[#come + 1] = name
      end
    end
    in_parts("ZREM", line_key, made.gone)
    in_parts("ZADD", line_key, come)
  end
