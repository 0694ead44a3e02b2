-- keys: body env ready delayed leases own bell meta recent failed_body failed_env failed_ready failed_delayed failed_leases failed_own wait aged lanes_ready lanes_scheduled lanes_queued lanes names out
-- with: lanes places failing recent
-- Puts entries that are in no line back to their lines, or moves them to the failed queue if they are not whole.
-- Shortens the log of completions.
-- Arguments: the number of sleeping consumers to wake at most; "env" or "body", the hash to look at; a cursor; the
-- number of entries to look at.
-- Answer: the next cursor ("0": that was all); the number by which bodies are more than envelopes; the ids that went
-- back; the ids that went to the failed queue.
local now, back, failed = clock(), {}, {}
call("ZREM", ready, "") -- a write that takes no memory
forget(tonumber(call("HGET", meta, "done") or 0) or 0, now)

local function is_in_line(id, envelope)
  local name = member(id, envelope)
  if call("ZSCORE", leases, id) or call("ZSCORE", delayed, name) then return true end
  if lane_of(envelope) then return laned(now).stands(id, envelope) end
  return call("ZSCORE", ready, name)
end

-- An entry that cannot be read may wait anywhere, where a claim finds it: only if all are empty it is in none.
local function is_unread_in_line(id)
  if call("ZSCORE", leases, id) then return true end
  for _, line_key in ipairs({ready, delayed, wait}) do
    if call("ZCARD", line_key) > 0 then return true end
  end
end

local function look(id, envelope)
  local is_readable = parsed(envelope)
  if is_readable and is_in_line(id, envelope) or not is_readable and is_unread_in_line(id) then return end
  if not is_readable or call("HEXISTS", body, id) == 0 then
    failed[#failed + 1] = id
    fail_unread(id, "it stood in no line, and was not whole", now)
  else
    back[#back + 1] = id
    come_back({id}, now)
    call("HDEL", own, id)
    enqueue(id, envelope, tonumber(envelope:match("^%d+ (%d+)")), now)
  end
end

local cursor, found = unpack(call("HSCAN", ARGV[2] == "env" and env or body, ARGV[3], "COUNT", ARGV[4]))
for i = 1, #found, 2 do
  local envelope = call("HGET", env, found[i])
  if ARGV[2] == "env" or not envelope then look(found[i], envelope) end
end
finish_lanes()
ring(#back, ARGV[1])
return {cursor, call("HLEN", body) - call("HLEN", env), back, failed}
