-- keys: body env ready delayed own
-- with: lines
-- args: how many may stay, microseconds for which each may ("" for any), limit. Gives how many of ready were deleted.
local now, limit = clock(), tonumber(ARGV[3])
promote(now, limit + 32)
local surplus = ARGV[1] ~= "" and call("ZCARD", ready) - ARGV[1] or 0
local since = ARGV[2] ~= "" and now - ARGV[2] or -1

local function goes(member, number)
  return number <= surplus or tonumber(member:sub(1, MOMENT)) < since
end

local first = oldest(1)[1]
if not first or not goes(first, 1) then return 0 end
local members = {}
for number, member in ipairs(oldest(limit)) do
  if number > limit or not goes(member, number) then break end
  members[number] = member
end
delete(ready, members)
return #members
