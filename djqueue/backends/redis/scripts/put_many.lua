-- keys: fact
-- Stores facts, one for each key.
-- Arguments: value and milliseconds ("" for ever) of each.
-- Answer: nothing.
for i, key in ipairs(KEYS) do
  local value, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  if ttl == "" then call("SET", key, value) else call("SET", key, value, "PX", ttl) end
end
