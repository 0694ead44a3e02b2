-- keys: env ready delayed own meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names
-- with: lanes places
-- Reads lanes.
-- Arguments: the number of lanes at most, and the name after which to begin ("-" for none); or 0, and the name of
-- one lane.
-- Answer: the records of the lanes.
local now, wanted = clock(), {ARGV[2]}
call("HDEL", own, "") -- a write that takes no memory
promote(now, 1000)
laned(now).wake(1000)
finish_lanes()
if ARGV[1] ~= "0" then
  wanted = call("ZRANGEBYLEX", names, ARGV[2] == "-" and "-" or "(" .. ARGV[2]:sub(2), "+", "LIMIT", 0, ARGV[1])
end
local found = {}
for _, name in ipairs(wanted) do found[#found + 1] = laned(now).record(name) end
return found
