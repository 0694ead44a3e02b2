-- What becomes of entries whose holders are gone. Needs holders, lanes and places.

-- Puts leased entries back where they waited. Their tokens stay, so a late worker may still finish an entry that was not taken
-- since; but not in a lane, which goes on. Gives their number, and the ids of those whose envelopes cannot be read, which stay.
local function lose(ids, now, rings)
  local lost, unread = {}, {}
  if #ids == 0 then return 0, unread end
  local owned, envelopes = call("HMGET", own, unpack(ids)), {}
  for i, envelope in ipairs(call("HMGET", env, unpack(ids))) do
    if parsed(envelope) then
      lost[#lost + 1], envelopes[#lost + 1] = i, envelope
    else
      unread[#unread + 1] = ids[i]
    end
  end
  local back = {}
  for n, i in ipairs(lost) do back[n] = ids[i] end
  call("ZREM", ready, "") -- a write that takes no memory
  come_back(back, now)
  for n, i in ipairs(lost) do
    local envelope = has_begun(owned[i]) and add_lost(ids[i], envelopes[n], 1) or envelopes[n]
    enqueue(ids[i], envelope, 0, now)
    if lane_of(envelope) then call("HDEL", own, ids[i]) end
  end
  if #back > 0 then call("ZREM", leases, unpack(back)) end
  finish_lanes()
  ring(#lost, rings)
  return #lost, unread
end
