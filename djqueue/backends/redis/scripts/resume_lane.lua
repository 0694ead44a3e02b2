-- keys: own bell meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names
-- with: lanes
-- Opens a lane that was paused, or that is held back until a moment.
-- Arguments: the number of sleeping consumers to wake at most; the name of the lane.
-- Answer: 1, or 0 if it was open.
call("HDEL", own, "") -- a write that takes no memory
local opened = laned(clock()).resume(ARGV[2])
finish_lanes()
if opened then ring(tonumber(ARGV[1]), ARGV[1]) end
return opened and 1 or 0
