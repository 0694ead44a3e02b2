-- keys: fact
-- args: value, milliseconds ("" for ever) of each; the keys that follow the first are those of the others.
for i, key in ipairs(KEYS) do
  local value, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  if ttl == "" then call("SET", key, value) else call("SET", key, value, "PX", ttl) end
end
