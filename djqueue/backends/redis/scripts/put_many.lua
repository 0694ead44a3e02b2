-- keys: fact
-- Stores facts, one for each key. One more key than facts says that these are results: it has the keys of all of them by the
-- millisecond at which their time is over.
-- Arguments: value and milliseconds ("" for ever) of each.
-- Answer: nothing.
local results = KEYS[#ARGV / 2 + 1]
local now = results and clock()
for i = 1, #ARGV / 2 do
  local key, value, ttl = KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]
  if ttl == "" then call("SET", key, value) else call("SET", key, value, "PX", ttl) end
  if results and ttl ~= "" then call("ZADD", results, whole(now / 1000 + ttl), key) end
end
