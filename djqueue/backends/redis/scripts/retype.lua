-- keys: body env ready delayed leases own meta done recent bell wait aged open timed line lanes names out flip dead_body dead_env dead_ready dead_delayed dead_leases dead_own
-- args: a word that makes new names, then the type of each key, and of any more that there are.
-- Keys of another type than their own get other names, under which they stay. Gives old and new name of each.
local renamed = {}
for i, key in ipairs(KEYS) do
  local type = call("TYPE", key).ok
  if type ~= "none" and type ~= ARGV[i + 1] then
    local name = key .. ":" .. type .. ":" .. ARGV[1]
    call("RENAME", key, name)
    renamed[#renamed + 1] = key
    renamed[#renamed + 1] = name
  end
end
return renamed
