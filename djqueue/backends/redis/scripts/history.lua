-- The history is two hashes of records by id, of which the newer one is written. Once it has as many as one may have, or is old, it
-- becomes the older one, whose records go. meta has the moment of that.

local function turn_history(now)
  call("UNLINK", history_old)
  if call("EXISTS", history) == 1 then call("RENAME", history, history_old) end
  call("HSET", meta, "history", whole(now))
end

-- Checks the key in which records will be kept.
local function check_history(said)
  if said ~= "" then check("HLEN", history) end
end

-- Keeps the records of entries. `said` has a line for each that was asked about, "" for none: those whose ids begin in ARGV at `first`,
-- `step` apart. `at` has the places of the ids to keep, which ascend. One hash has `most` records at most.
local function keep_records(ids, at, first, step, said, most, now)
  if said == "" then return end
  local find, sub, kept, n, i, from, place = string.find, string.sub, {}, 0, 1, 1, first
  while at[i] do
    local to = find(said, "\n", from, true) or 0
    if place == at[i] then
      if to ~= from and from <= #said then
        kept[n + 1], kept[n + 2], n = ids[i], sub(said, from, to - 1), n + 2
      end
      i = i + 1
    end
    from, place = to + 1, place + step
  end
  if n == 0 then return end
  call("HSET", history, unpack(kept))
  if call("HLEN", history) >= tonumber(most) then turn_history(now) end
end
