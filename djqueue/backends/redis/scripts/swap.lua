-- keys: fact
-- args: value that was, value, milliseconds.
if call("GET", fact) ~= ARGV[1] then return 0 end
call("SET", fact, ARGV[2], "PX", ARGV[3])
return 1
