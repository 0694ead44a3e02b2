-- keys: own bell meta wait aged open timed line lanes names
-- with: lanes
-- args: rings, name. Gives 1 if it was shut, else 0.
call("HDEL", own, "") -- a write that takes no memory
local opened = laned(clock()).open(ARGV[2])
finish_lanes()
if opened then ring(tonumber(ARGV[1]), ARGV[1]) end
return opened and 1 or 0
