-- keys: fact
-- Replaces a fact.
-- Arguments: the value that it must have; the new value; the milliseconds for which that is kept.
-- Answer: 1, or 0 if it has another value.
if call("GET", fact) ~= ARGV[1] then return 0 end
call("SET", fact, ARGV[2], "PX", ARGV[3])
return 1
