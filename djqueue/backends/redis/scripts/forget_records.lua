-- keys: history history_old
-- Deletes records.
-- Arguments: the ids.
-- Answer: the number of records that were deleted.
return call("HDEL", history, unpack(ARGV)) + call("HDEL", history_old, unpack(ARGV))
