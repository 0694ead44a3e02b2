-- The entries of a line.

-- Deletes entries by their members of a line.
local function delete(line_key, members)
  local ids = {}
  for i, name in ipairs(members) do ids[i] = name:sub(DIGITS + 1) end
  call("ZREM", line_key, unpack(members))
  for _, hash in ipairs({own, body, env}) do call("HDEL", hash, unpack(ids)) end
end

-- Members of ready, the oldest first: up to `limit` of each of the first 32 priorities.
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
