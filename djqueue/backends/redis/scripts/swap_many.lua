-- keys: fact
-- Changes several facts, or none if one of them has another value by now.
-- Arguments: milliseconds; for each key whether it has a value and which, whether it is to have one and which (0 or 1).
-- Answer: 1, or 0 if a fact has another value.
for i, key in ipairs(KEYS) do
  local is, was = ARGV[4 * i - 2], ARGV[4 * i - 1]
  if call("GET", key) ~= (is == "1" and was) then return 0 end
end
for i, key in ipairs(KEYS) do
  if ARGV[4 * i] == "1" then call("SET", key, ARGV[4 * i + 1], "PX", ARGV[1]) else call("DEL", key) end
end
return 1
