-- keys: meta
-- The key says which server's clock it is.
return clock()
