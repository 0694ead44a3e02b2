-- keys: body env ready delayed leases meta done bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names recent failed_env
-- with: guards lanes places putting
-- Repeats a put that the server may have done already. An entry that it put then may have ended by now, so ended
-- entries are known as well.
-- Arguments: see putting.lua.
-- Answer: see putting.lua.
local now, ended = clock(), {}
for _, some in ipairs(call("LRANGE", recent, 0, -1)) do
  local is_read, ids = pcall(cmsgpack.unpack, some:sub(33))
  for _, id in ipairs(is_read and type(ids) == "table" and ids or {}) do ended[tostring(id)] = true end
end

return put(now, function(id)
  return ended[id] or call("HEXISTS", failed_env, id) == 1 or is_there(id, now)
end, 17)
