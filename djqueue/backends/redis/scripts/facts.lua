-- Results of entries that end: the number of the key and milliseconds ("" for no result), then the value. `results` has the keys of all
-- by the millisecond at which their time is over.
local function keep_results(at, offset, now)
  local ends, n = {}, 0
  for _, first in ipairs(at) do
    local number, ttl = (ARGV[first + offset] or ""):match("^(%d+) (%d+)$")
    if number then
      local key = KEYS[tonumber(number)]
      call("SET", key, ARGV[first + offset + 1], "PX", ttl)
      ends[n + 1], ends[n + 2], n = whole(now / 1000 + ttl), key, n + 2
    end
  end
  if n > 0 then call("ZADD", results, unpack(ends)) end
end
