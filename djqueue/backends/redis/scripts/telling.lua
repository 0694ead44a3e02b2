-- Adds an entry to the reply, by its score and member, unless it is gone. Needs: reply.
local function tell(place, name, id)
  local envelope, data = call("HGET", env, id), call("HGET", body, id)
  if not envelope and not data then return end
  for _, value in ipairs({place, name, id, envelope or "", data or "", call("HGET", own, id) or ""}) do reply[#reply + 1] = value end
end
