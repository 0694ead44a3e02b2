-- keys: body env ready delayed leases own meta done recent bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names out flip history history_old inbox repeated
-- with: holders recent history inbox
-- Deletes leased entries that are done, and leases others to the same worker.
-- Arguments: the three of completing.lua; of the claim the number of units of work at most, the number of these that would
-- wait for a worker, the number of entries at most, the microseconds of the lease, its token, its owner; then the tokens of
-- the leases that are done as one text, the number of records in a hash at most, the records, a line for each of these ("" if there
-- are none); then the id of each.
-- Answer: see claiming.lua; before the entries come the numbers of the leases that are not held any more.
local now, limit, ahead, most = clock(), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local span, token, owner, tokens, lost = ARGV[7], ARGV[8], ARGV[9], ARGV[10], {}
if #ARGV > 12 then
  local ids, seen, at = {}, {}, {}
  for number, owned in ipairs(call("HMGET", own, unpack(ARGV, 13))) do
    local id = ARGV[number + 12]
    if owned and not seen[id] and owned:sub(1, TOKEN) == tokens:sub(TOKEN * (number - 1) + 1, TOKEN * number) then
      ids[#ids + 1], seen[id] = id, true
      at[#at + 1] = number + 12
    else
      lost[#lost + 1] = number
    end
  end
  if #ids > 0 then
    check_history(ARGV[12])
    -- with: completing
    keep_records(ids, at, 13, 1, ARGV[12], ARGV[11], now)
    call("HDEL", own, unpack(ids))
  end
end

local begin, remember = "0", ARGV[2]
-- with: claiming
reply[7] = lost
return reply
