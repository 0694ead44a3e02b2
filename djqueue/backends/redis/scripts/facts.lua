-- Facts of entries that end: "number milliseconds" of each, the number being that of its key, and its value; "" and "" if there
-- is none.
local function keep_facts(at, offset)
  for _, first in ipairs(at) do
    local number, ttl = (ARGV[first + offset] or ""):match("^(%d+) (%d+)$")
    if number then call("SET", KEYS[tonumber(number)], ARGV[first + offset + 1], "PX", ttl) end
  end
end
