-- Where entries are. Needs lanes.

-- `gated` is whether the entry waits in a lane; nil: its envelope decides.
local function enqueue(id, envelope, at, now, gated)
  if at > now then
    call("ZADD", delayed, at, member(id, envelope))
  elseif gated or gated == nil and lane_of(envelope) then
    laned(now).enter(id, envelope)
  else
    call("ZADD", ready, score(envelope), member(id, envelope))
  end
end

-- Removes an entry from where it may wait; whether it waited.
local function step_aside(id, envelope, now)
  if call("ZREM", delayed, member(id, envelope)) == 1 then return true end
  if lane_of(envelope) then return laned(now).leave(id, envelope) end
  return call("ZREM", ready, member(id, envelope)) == 1
end

-- Deletes an entry that waits; whether it waited.
local function remove_waiting(id, now)
  local envelope = call("HGET", env, id)
  if not envelope and call("HEXISTS", body, id) == 0 or call("ZSCORE", leases, id) then return false end
  if parsed(envelope) then step_aside(id, envelope, now) end
  for _, hash in ipairs({own, body, env}) do call("HDEL", hash, id) end
  return true
end

-- Moves due entries from delayed to ready or to their lanes. An entry that cannot be read is left to the next claim.
local function promote(now, limit)
  local due = call("ZRANGEBYSCORE", delayed, "-inf", now, "LIMIT", 0, limit)
  if #due == 0 then return end
  local ids, scored, entering = {}, {}, {}
  for i, name in ipairs(due) do ids[i] = name:sub(DIGITS + 1) end
  for i, envelope in ipairs(call("HMGET", env, unpack(ids))) do
    if parsed(envelope) and lane_of(envelope) then
      entering[#entering + 1] = i
      entering[#entering + 1] = envelope
    else
      scored[#scored + 1] = parsed(envelope) and score(envelope) or 0
      scored[#scored + 1] = due[i]
    end
  end
  call("ZREM", ready, "") -- a write that takes no memory
  if #scored > 0 then call("ZADD", ready, unpack(scored)) end
  if #entering > 0 then laned(now) end
  call("ZREM", delayed, unpack(due))
  for i = 1, #entering, 2 do laned(now).enter(ids[entering[i]], entering[i + 1]) end
end
