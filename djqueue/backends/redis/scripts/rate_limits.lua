-- Rate limits: a window that many share, kept under a key of its own; stores.py has the same. Needs windows.
--
-- An account is limit, span, ways and buffer of the window, when it was last used with that window, its log, and whether the
-- window was set while it was in use.
local CLAIMED_FOR, KEPT = 60000000, 10 * 365 * 86400 * 1000

local function read_account(key)
  local kept, windows = call("GET", key), window_rules()
  if not kept then return nil, windows end
  local limit, span, ways, buffer, used, log, is_fixed = cmsgpack.unpack(kept)
  local given = {limit, span, ways, buffer}
  return {given = given, window = windows.window(unpack(given)), used = used, log = log, is_fixed = is_fixed}, windows
end

-- The account of a rate limit as it holds for a user with this window. `spaced` is the key of the last grant of a shared
-- spacing, nil if it is not shared.
local function account_of(key, spaced, given, now)
  local account, windows = read_account(key)
  local said = windows.window(unpack(given))
  if not account then
    account = {given = given, window = said, used = now, log = windows.log()}
  elseif account.window.text == said.text then
    account.used = now
  else
    local is_in_use = now - account.used < math.min(CLAIMED_FOR, 2 * account.window.span)
    if not account.is_fixed and not (is_in_use and windows.is_stricter(account.window, said)) then
      account.given, account.window, account.used = given, said, now
      windows.adopt(said, account.log)
    end
  end
  account.key, account.spaced, account.windows = key, spaced, windows
  account.own_last = account.log.last
  if spaced then account.log.last = math.max(account.log.last, tonumber(call("GET", spaced) or 0)) end
  return account
end

-- How many may leave now; if none, in how many microseconds one may, and why.
local function left_of(account, now)
  return account.windows.capacity(account.window, account.log, now)
end

-- Two milliseconds more: Redis counts whole ones, from a moment before now.
local function kept_for(span)
  return math.ceil(2 * span / 1000) + 2
end

local function write_account(key, account)
  local limit, span, ways, buffer = unpack(account.given)
  local packed = cmsgpack.pack(limit, span, ways, buffer, account.used, account.log, account.is_fixed or false)
  call("SET", key, packed, "PX", account.is_fixed and KEPT or kept_for(span))
end

local function save(account)
  account.log.last = account.own_last or account.log.last -- without grants of other users, which may be returned
  write_account(account.key, account)
end

local function spend(account, number, now)
  if number == 0 then return end
  account.windows.granted(account.window, account.log, number, now)
  account.own_last = nil
  if account.spaced then call("SET", account.spaced, whole(now), "PX", kept_for(account.window.span)) end
end

local function numbers(first, last)
  local found = {}
  for i = first, last do found[#found + 1] = tonumber(ARGV[i]) end
  return found
end
