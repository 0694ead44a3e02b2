-- keys: body env ready own meta bell inbox repeated
-- Reads ready entries, the last of their order first. Those that wait in lanes are left out.
-- Argument: the number of entries at most.
-- Answer: score, member, id, envelope, data, and token with owner, of each entry.
local reply, range = {}, LIFO and "ZRANGE" or "ZREVRANGE"
-- with: telling inbox
take_in_to_read(clock())
local found = call(range, ready, 0, tonumber(ARGV[1]) - 1, "WITHSCORES")
for i = 1, #found, 2 do tell(found[i + 1], found[i], found[i]:sub(DIGITS + 1)) end
return reply
