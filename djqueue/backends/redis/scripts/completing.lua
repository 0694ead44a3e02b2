-- What a completion does. No function, but a passage of the scripts complete and exchange: what is for lanes is defined only where
-- an entry has left one.
--
-- Needs: now; ids, which are held by their holder. The tokens are left, to go last.
-- Arguments: the number of sleeping consumers to wake at most; the microseconds for which finished ids are kept ("" for none); the
-- number of ids kept at most.
check("HLEN", body, env, meta)
check("LLEN", recent)
if ARGV[2] ~= "" then check("ZCARD", done) end
if call("EXISTS", out) == 1 then
  -- with: lanes
  check("LLEN", bell)
  ring(come_back(ids, now), ARGV[1])
  finish_lanes()
end
leave(ids)
call("HDEL", body, unpack(ids))
call("HDEL", env, unpack(ids))
remember(ids, count_up("done", #ids, 0), now)
if ARGV[2] ~= "" then
  local finished = {}
  for i, id in ipairs(ids) do finished[2 * i - 1], finished[2 * i] = now, id end
  call("ZADD", done, unpack(finished))
  call("ZREMRANGEBYSCORE", done, "-inf", now - ARGV[2])
  call("ZREMRANGEBYRANK", done, 0, -1 - ARGV[3])
end
