-- What stands in the lines.

-- Deletes entries that wait, by their members of a line.
local function delete(line, members)
  local ids = {}
  for i, name in ipairs(members) do ids[i] = name:sub(DIGITS + 1) end
  call("ZREM", line, unpack(members))
  for _, hash in ipairs({own, body, env}) do call("HDEL", hash, unpack(ids)) end
end

-- Up to so many members of ready of each of the first 32 priorities, the oldest first.
local function oldest(limit)
  local members, above = {}, "-inf"
  for _ = 1, 32 do
    local first = call("ZRANGEBYSCORE", ready, above, "+inf", "WITHSCORES", "LIMIT", 0, 1)
    if #first == 0 then break end
    local some = limit == 1 and {first[1]} or call("ZRANGEBYSCORE", ready, first[2], first[2], "LIMIT", 0, limit)
    for _, name in ipairs(some) do members[#members + 1] = name end
    above = "(" .. first[2]
  end
  table.sort(members, function(one, other) return one:sub(1, DIGITS) < other:sub(1, DIGITS) end)
  return members
end

local function promote(now, limit)
  local due = call("ZRANGEBYSCORE", delayed, "-inf", now, "LIMIT", 0, limit)
  if #due == 0 then return end
  local ids, scored = {}, {}
  for i, name in ipairs(due) do ids[i] = name:sub(DIGITS + 1) end
  for i, envelope in ipairs(call("HMGET", env, unpack(ids))) do
    if envelope then
      scored[#scored + 1] = score(envelope)
      scored[#scored + 1] = due[i]
    end
  end
  call("ZREM", delayed, unpack(due))
  if #scored > 0 then call("ZADD", ready, unpack(scored)) end
end

local function until_first(line, now)
  local first = call("ZRANGE", line, 0, 0, "WITHSCORES")
  return first[2] and math.max(0, first[2] - now) or -1
end
