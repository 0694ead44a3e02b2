-- keys: meta
-- Reads the clock of the server that has the key.
-- Arguments: none.
-- Answer: the time.
return clock()
