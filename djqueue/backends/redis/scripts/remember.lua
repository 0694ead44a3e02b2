-- keys: meta history history_old
-- with: history
-- Keeps records of what has ended.
-- Arguments: the number of records of a hash at most; then id and record of each.
-- Answer: nothing of interest.
call("HDEL", history, "") -- the first write may take no memory, or a full server would refuse it
local kept = {unpack(ARGV, 2)}
keep_records(kept, ARGV[1], clock())
return 1
