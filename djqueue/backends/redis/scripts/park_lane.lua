-- keys: own meta wait aged open timed line lanes names
-- with: lanes
-- args: name, why.
call("HDEL", own, "") -- a write that takes no memory
laned(clock()).park(ARGV[1], ARGV[2])
finish_lanes()
