-- recent has the ids of what was completed within a minute, in the order of the completions: how many there ever were (16
-- digits), when it was (16), ids. Only a repeated put reads it, so it is a log and no index.
local RECENT_FOR, RECENT_MOST, FORGET_EVERY = 60000000, 100000, 100

-- Whether it is too old, or was written by hand.
local function is_over(some, count, now)
  local number, at = some:sub(1, 16):match("^%d+$"), some:sub(17, 32):match("^%d+$")
  if not (number and at) then return true end
  return math.abs(now - at) > RECENT_FOR or math.abs(count - number) >= RECENT_MOST
end

-- Removes the oldest until the ids left are recent, and not too many.
local function forget(count, now)
  local first = call("LINDEX", recent, 0)
  while first and is_over(first, count, now) do
    call("LPOP", recent)
    first = call("LINDEX", recent, 0)
  end
end

local function remember(ids, count, now)
  call("RPUSH", recent, string.format("%016.0f%016.0f", count, now) .. cmsgpack.pack(ids))
  if math.floor(count / FORGET_EVERY) ~= math.floor((count - #ids) / FORGET_EVERY) then forget(count, now) end
end
