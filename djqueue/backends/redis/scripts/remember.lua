-- keys: meta history history_old
-- with: history
-- Keeps records of what has ended.
-- Arguments: the number of records of a hash at most; the records, a line for each; then their ids.
-- Answer: nothing of interest.
call("HDEL", history, "") -- the first write may take no memory, or a full server would refuse it
local ids, at = {unpack(ARGV, 3)}, {}
for i = 1, #ids do at[i] = i + 2 end
keep_records(ids, at, 3, 1, ARGV[2], ARGV[1], clock())
return 1
