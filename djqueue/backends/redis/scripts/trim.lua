-- keys: body env ready delayed own meta bell inbox repeated
-- with: lanes places lines inbox
-- Deletes the oldest entries that are ready. It is meant for failed queues, which have no lanes: it does not see entries
-- in lanes.
-- Arguments: the number of entries that may stay ("" for any); the microseconds for which each may ("" for any); the
-- number of entries to delete at most.
-- Answer: the number of entries that were deleted.
local now, limit = clock(), tonumber(ARGV[3])
take_in(now)
if IS_FAILED then promote(now, limit + 32) end
local surplus = ARGV[1] ~= "" and call("ZCARD", ready) - ARGV[1] or 0
local since = ARGV[2] ~= "" and now - ARGV[2] or -1

local function goes(member, number)
  return number <= surplus or (tonumber(member:sub(1, MOMENT)) or 0) < since
end

local first = oldest(1)[1]
if not first or not goes(first, 1) then return 0 end
local members = {}
for number, member in ipairs(oldest(limit)) do
  if number > limit or not goes(member, number) then break end
  members[number] = member
end
if #members > 0 then delete(ready, members) end
return #members
