-- keys: body env ready delayed leases own meta done recent bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names out flip
-- with: holders recent
-- Deletes leased entries that are done, and leases others to the same worker.
-- Arguments: the three of completing.lua; of the claim the number of units of work at most, the number of these that would
-- wait for a worker, the number of entries at most, the microseconds of the lease, its token, its owner; then the tokens of
-- the leases that are done as one text, then the id of each.
-- Answer: see claiming.lua; before the entries come the numbers of the leases that are not held any more.
local now, limit, ahead, most = clock(), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local span, token, owner, tokens, lost = ARGV[7], ARGV[8], ARGV[9], ARGV[10], {}
if #ARGV > 10 then
  local ids, seen = {}, {}
  for number, owned in ipairs(call("HMGET", own, unpack(ARGV, 11))) do
    local id = ARGV[number + 10]
    if owned and not seen[id] and owned:sub(1, TOKEN) == tokens:sub(TOKEN * (number - 1) + 1, TOKEN * number) then
      ids[#ids + 1], seen[id] = id, true
    else
      lost[#lost + 1] = number
    end
  end
  if #ids > 0 then
    -- with: completing
    call("HDEL", own, unpack(ids))
  end
end

local begin, remember = "0", ARGV[2]
-- with: claiming
reply[7] = lost
return reply
