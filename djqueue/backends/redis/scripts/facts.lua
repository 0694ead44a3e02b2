-- Facts of entries that end: the number of the key and milliseconds ("" for no fact), then the value.
local function keep_facts(at, offset)
  for _, first in ipairs(at) do
    local number, ttl = (ARGV[first + offset] or ""):match("^(%d+) (%d+)$")
    if number then call("SET", KEYS[tonumber(number)], ARGV[first + offset + 1], "PX", ttl) end
  end
end
