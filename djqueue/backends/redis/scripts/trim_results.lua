-- keys: results
-- Forgets the keys of results whose time is over, and those that are over first beyond the number to keep.
-- Arguments: that number; how many to forget at most.
-- Answer: the keys of the latter, whose results are to be deleted.
call("ZREMRANGEBYSCORE", results, "-inf", whole(clock() / 1000))
local surplus = math.min(call("ZCARD", results) - ARGV[1], ARGV[2])
local keys = {}
if surplus > 0 then
  local first = call("ZPOPMIN", results, surplus)
  for i = 1, #first, 2 do keys[#keys + 1] = first[i] end
end
return keys
