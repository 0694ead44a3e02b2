-- recent has the ids of what was completed within a minute, in the order of the completions: how many there ever were (16
-- digits), when it was (16), ids. Only a put that is repeated reads it, so it is a log and no index.
local RECENT_FOR, RECENT_MOST, FORGET_EVERY = 60000000, 100000, 100

-- Out go the first of so many that there ever were, until those left are recent and no more than may be.
local function forget(count, now)
  local first = call("LINDEX", recent, 0)
  while first and (now - first:sub(17, 32) > RECENT_FOR or count - first:sub(1, 16) >= RECENT_MOST) do
    call("LPOP", recent)
    first = call("LINDEX", recent, 0)
  end
end

local function remember(ids, count, now)
  call("RPUSH", recent, string.format("%016.0f%016.0f", count, now) .. cmsgpack.pack(ids))
  if math.floor(count / FORGET_EVERY) ~= math.floor((count - #ids) / FORGET_EVERY) then forget(count, now) end
end
