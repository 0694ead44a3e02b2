-- keys: env ready delayed meta bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names body inbox repeated
-- with: lanes places inbox
-- Lets delayed entries be due now.
-- Arguments: the number of sleeping consumers to wake at most; then their ids.
-- Answer: the number of entries that were delayed.
local promoted, now = 0, clock()
take_in(now)

-- An entry that was to fall due for the first time gets this moment for its place; any other has the place that it had. Each is due
-- now, also when it is given back.
local function make_due(id, envelope)
  local number, rest = envelope:match("^(%d+) %d+ (.*)$")
  local stands = tonumber(number:sub(1, MOMENT)) > now and place(now, number:sub(MOMENT + 1)) or number
  envelope = stands .. " " .. whole(now) .. " " .. rest
  call("HSET", env, id, envelope)
  enqueue(id, envelope, 0, now)
  promoted = promoted + 1
end

for i = 2, #ARGV do
  local envelope = call("HGET", env, ARGV[i])
  if parsed(envelope) and call("ZREM", delayed, member(ARGV[i], envelope)) == 1 then make_due(ARGV[i], envelope) end
end
finish_lanes()
ring(promoted, ARGV[1])
return promoted
