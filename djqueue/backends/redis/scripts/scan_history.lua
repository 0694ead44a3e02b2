-- keys: meta history history_old
-- Looks at some records, in no order. A record of the older hash whose id has one in the newer counts no more.
-- Arguments: "new" or "old", which of the two hashes; the cursor; the number of records, or a few more; the moment
-- before which none is wanted, with which a record begins, or "".
-- Answer: when the hashes were turned last; the next cursor, "0" at the end; then id and record of each.
local is_old, oldest, reply = ARGV[1] == "old", ARGV[4], {call("HGET", meta, "history") or ""}
local found = call("HSCAN", is_old and history_old or history, ARGV[2], "COUNT", ARGV[3])
reply[2] = found[1]
for i = 1, #found[2], 2 do
  if found[2][i + 1] >= oldest and (not is_old or call("HEXISTS", history, found[2][i]) == 0) then
    reply[#reply + 1], reply[#reply + 2] = found[2][i], found[2][i + 1]
  end
end
return reply
