-- keys: body env ready delayed own meta wait aged open timed line lanes names
-- with: lanes places lines
-- args: how many may stay, microseconds for which each may ("" for any), limit. Gives how many of ready were deleted.
local now, limit = clock(), tonumber(ARGV[3])
promote(now, limit + 32)
finish_lanes()
local surplus = ARGV[1] ~= "" and call("ZCARD", ready) + (IS_DEAD and 0 or call("ZCARD", aged)) - ARGV[1] or 0
local since = ARGV[2] ~= "" and now - ARGV[2] or -1

local function goes(member, number)
  return number <= surplus or (tonumber(member:sub(1, MOMENT)) or 0) < since
end

local first = oldest(1)[1]
if not first or not goes(first, 1) then return 0 end
local members, of_lanes = {}, {}
for number, member in ipairs(oldest(limit)) do
  if number > limit or not goes(member, number) then break end
  local some = not IS_DEAD and call("ZSCORE", aged, member) and of_lanes or members
  some[#some + 1] = member
end
if #members > 0 then delete(ready, members, now) end
if #of_lanes > 0 then delete(aged, of_lanes, now) end
finish_lanes()
return #members + #of_lanes
