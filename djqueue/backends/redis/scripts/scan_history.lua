-- keys: meta history history_old
-- Looks at some records, in no order.
-- Arguments: "new" or "old", which of the two hashes; the cursor; the number of records, or a few more.
-- Answer: when the hashes were turned last; the next cursor, "0" at the end; then id and record of each.
local found = call("HSCAN", ARGV[1] == "new" and history or history_old, ARGV[2], "COUNT", ARGV[3])
return {call("HGET", meta, "history") or "", found[1], unpack(found[2])}
