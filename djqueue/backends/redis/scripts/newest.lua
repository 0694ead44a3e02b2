-- keys: body env ready own
-- Reads ready entries, the last of their order first. Those that wait in lanes are left out.
-- Argument: the number of entries at most.
-- Answer: score, member, id, envelope, data, and token with owner, of each entry.
local reply, range = {}, LIFO and "ZRANGE" or "ZREVRANGE"
local found = call(range, ready, 0, tonumber(ARGV[1]) - 1, "WITHSCORES")
for i = 1, #found, 2 do
  local id = found[i]:sub(DIGITS + 1)
  local envelope, data = call("HGET", env, id), call("HGET", body, id)
  if envelope or data then
    for _, value in ipairs({found[i + 1], found[i], id, envelope or "", data or "", call("HGET", own, id) or ""}) do
      reply[#reply + 1] = value
    end
  end
end
return reply
