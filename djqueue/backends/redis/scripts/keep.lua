-- keys: fact
-- Prolongs a fact.
-- Arguments: the value that it must have; the milliseconds.
-- Answer: 1, or 0 if it has another value.
return call("GET", fact) == ARGV[1] and call("PEXPIRE", fact, ARGV[2]) or 0
