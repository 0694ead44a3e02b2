-- keys: fact
-- Runs a command on a fact.
-- Arguments: the value that the fact must have; the command; its arguments behind the key.
-- Answer: 1, or 0 if the fact has another value.
if call("GET", fact) ~= ARGV[1] then return 0 end
call(ARGV[2], fact, unpack(ARGV, 3))
return 1
