-- keys: fact
-- Deletes a fact.
-- Arguments: the value that it must have.
-- Answer: 1, or 0 if it has another value.
return call("GET", fact) == ARGV[1] and call("DEL", fact) or 0
