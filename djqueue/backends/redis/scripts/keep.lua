-- keys: fact
-- args: value, milliseconds.
return call("GET", fact) == ARGV[1] and call("PEXPIRE", fact, ARGV[2]) or 0
