-- keys: body env ready delayed leases own meta bell inbox repeated
-- with: inbox
-- Reads one entry.
-- Arguments: its id.
-- Answer: nothing, or state, moment, id, envelope, data, and token with owner.
local id, now = ARGV[1], clock()
take_in_to_read(now)
local envelope = call("HGET", env, id) or ""
if envelope == "" and call("HEXISTS", env, id) + call("HEXISTS", body, id) == 0 then return {} end

local function record(state, at)
  return {state, whole(at), id, envelope, call("HGET", body, id) or "", call("HGET", own, id) or ""}
end

local expires, due = call("ZSCORE", leases, id), call("ZSCORE", delayed, member(id, envelope))
if expires then return record("leased", expires) end
if due and tonumber(due) > now then return record("delayed", due) end
return record("ready", envelope:match("^" .. ("%d"):rep(MOMENT)) or now)
