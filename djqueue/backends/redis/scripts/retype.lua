-- keys: body env ready delayed leases own meta done recent bell wait aged lanes_ready lanes_scheduled lanes_queued lanes names out flip history history_old failed_body failed_env failed_ready failed_delayed failed_leases failed_own
-- Renames keys of another type than their own. They stay under their new names.
-- Arguments: a word that makes new names; then the type of each key.
-- Answer: old and new name of each key that was renamed.
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
