-- Moves entries to the queue of failed messages.

-- Removes an entry of that id that is there already.
local function make_room(id)
  local envelope = call("HGET", failed_env, id)
  if not envelope then return end
  for _, line_key in ipairs({failed_ready, failed_delayed}) do call("ZREM", line_key, member(id, envelope)) end
  call("ZREM", failed_leases, id)
  call("HDEL", failed_own, id)
end

-- An entry whose envelope cannot be read gets a new one, whose errors have the reason and the old envelope.
local function fail_unread(id, why, now)
  local old = (call("HGET", env, id) or ""):sub(1, 300):gsub("[^\32-\126]", function(char)
    return string.format("\\x%02x", char:byte())
  end)
  local reason = old == "" and why or why .. "; its envelope is " .. old
  local errors = cjson.encode({{at = math.floor(now / 1000) / 1000, attempt = 0, reason = reason}})
  local envelope = place(now, count_places(1, now)) .. " 0 " .. whole(now) .. " 0 0 0 0 0 0\n" .. errors
  local data, into = call("HGET", body, id) or "", {failed_body, failed_env, failed_ready}
  if IS_FAILED then into = {body, env, ready} else make_room(id) end
  for _, hash in ipairs({body, env}) do call("HDEL", hash, id) end
  call("HSET", into[1], id, data)
  call("HSET", into[2], id, envelope)
  call("ZADD", into[3], 0, member(id, envelope))
end
