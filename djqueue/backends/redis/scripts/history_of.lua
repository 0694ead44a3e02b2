-- keys: history history_old
-- Finds a record.
-- Arguments: an id.
-- Answer: its record, or nothing.
return call("HGET", history, ARGV[1]) or call("HGET", history_old, ARGV[1])
