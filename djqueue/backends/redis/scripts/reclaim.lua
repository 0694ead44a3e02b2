-- keys: env ready delayed leases own bell meta wait aged lanes_ready lanes_scheduled lanes_queued lanes names out
-- with: holders lanes places losing
-- Puts entries that a dead owner holds back where they waited.
-- Arguments: the number of entries at most; the number of sleeping consumers to wake at most; a cursor; the number of
-- holders to look at; the owner.
-- Answer: the next cursor ("0": that was all); the number of entries; the ids of entries whose envelopes cannot be
-- read, which stay.
local ids = {}
local cursor, found = unpack(call("HSCAN", own, ARGV[3], "COUNT", ARGV[4]))
for i = 1, #found, 2 do
  local is_owned = #ids < tonumber(ARGV[1]) and found[i + 1]:sub(TOKEN + 2) == ARGV[5]
  if is_owned and call("ZSCORE", leases, found[i]) then ids[#ids + 1] = found[i] end
end
return {cursor, lose(ids, clock(), ARGV[2])}
