-- Budgets: a window that many share, kept under a key of its own; spending.py has the same. Needs windows.
--
-- An account is limit, span, ways and buffer of the window, when it was last used, and its log.

local CLAIMED_FOR = 60000000

-- The account of a budget, new if there is none; nil and the window of the others if they mean another one just now.
-- `spaced` is the key of the last grant of those who share its spacing, nil if nobody does.
local function account_of(key, spaced, given, now)
  local windows, kept, account = window_rules(), call("GET", key), {key = key, spaced = spaced, given = given}
  account.windows, account.window = windows, windows.window(unpack(given))
  if kept then
    local limit, span, ways, buffer, used, log = cmsgpack.unpack(kept)
    if windows.window(limit, span, ways, buffer).text == account.window.text then
      account.log = log
    elseif now - used < math.min(CLAIMED_FOR, 2 * span) then
      return nil, {"different", whole(limit), whole(span), whole(ways), whole(buffer)}
    end
  end
  account.log = account.log or windows.log()
  account.own_last = account.log.last
  if spaced then account.log.last = math.max(account.log.last, tonumber(call("GET", spaced) or 0)) end
  return account
end

-- How many may leave now; if none, in how many microseconds one may, and why.
local function left_of(account, now)
  return account.windows.room(account.window, account.log, now)
end

-- Two milliseconds more: Redis counts whole ones, from a moment before now.
local function kept_for(span)
  return math.ceil(2 * span / 1000) + 2
end

local function save(account, now)
  account.log.last = account.own_last or account.log.last -- what others spaced is theirs, and they may take it back
  local limit, span, ways, buffer = unpack(account.given)
  call("SET", account.key, cmsgpack.pack(limit, span, ways, buffer, now, account.log), "PX", kept_for(span))
end

local function spend(account, number, now)
  if number == 0 then return end
  account.windows.grant(account.window, account.log, number, now)
  account.own_last = nil
  if account.spaced then call("SET", account.spaced, whole(now), "PX", kept_for(account.window.span)) end
end

local function numbers(first, last)
  local found = {}
  for i = first, last do found[#found + 1] = tonumber(ARGV[i]) end
  return found
end
