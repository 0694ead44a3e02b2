-- The history is two hashes of records by id, of which the newer one is written. Once it has as many as one may have, or is old, it
-- becomes the older one, whose records go. meta has the moment of that.

local function turn_history(now)
  call("UNLINK", history_old)
  if call("EXISTS", history) == 1 then call("RENAME", history, history_old) end
  call("HSET", meta, "history", whole(now))
end

-- Id and record, the argument at that offset, of each entry that has one.
local function records(ids, at, offset)
  local kept, n = {}, 0
  for i, first in ipairs(at) do
    local record = ARGV[first + offset]
    if record ~= "" then
      kept[n + 1], kept[n + 2] = ids[i], record
      n = n + 2
    end
  end
  return kept
end

-- Keeps records, which are behind their ids; as many at most are in one hash.
local function keep_records(kept, most, now)
  if #kept == 0 then return end
  call("HSET", history, unpack(kept))
  if call("HLEN", history) >= tonumber(most) then turn_history(now) end
end
