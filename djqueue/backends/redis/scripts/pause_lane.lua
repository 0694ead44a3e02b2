-- keys: own meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names
-- with: lanes
-- Pauses a lane: nothing leaves it until it is opened.
-- Arguments: the name of the lane; the reason.
-- Answer: nothing.
call("HDEL", own, "") -- a write that takes no memory
laned(clock()).pause(ARGV[1], ARGV[2])
finish_lanes()
