-- keys: fact
-- args: value.
return call("GET", fact) == ARGV[1] and call("DEL", fact) or 0
