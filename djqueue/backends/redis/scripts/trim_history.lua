-- keys: meta history history_old
-- with: history
-- Deletes the records of the older hash if the newer one has been written for half of the age, and all if none is to be kept.
-- Arguments: the microseconds of half of the age; the number of records at most.
-- Answer: the number of records that were deleted, and of those that are left.
local now, before = clock(), call("HLEN", history_old)
local turned = tonumber(call("HGET", meta, "history") or nil)
if before + call("HLEN", history) == 0 then return {0, 0} end
call("HDEL", history, "") -- the first write may take no memory, or a full server would refuse it
if tonumber(ARGV[2]) == 0 then
  before = before + call("HLEN", history)
  call("UNLINK", history, history_old)
  return {before, 0}
end
if not turned then
  call("HSET", meta, "history", whole(now))
elseif now - turned >= tonumber(ARGV[1]) then
  turn_history(now)
  return {before, call("HLEN", history_old)}
end
return {0, before + call("HLEN", history)}
