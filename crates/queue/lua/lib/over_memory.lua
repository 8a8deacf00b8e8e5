-- The limit of what a tenant may take.
--- @include "lib/counts", "lib/keys", "lib/limits", "lib/streamed"

-- Whether so many bytes more are more than a tenant may have: then what it may have and what it has. `share` is of
-- those that have no limit of their own, "" where there is room for all.
local function over_memory(tenant, more, share, now)
  local most = limits('t:' .. tenant).max_memory or tonumber(share)
  if not most then return nil end
  local used = counted(ROOT .. ':bytes', 't:' .. tenant) + counted(ROOT .. ':beside', tenant)
  for before = 0, 1 do used = used + (tonumber(redis.call('HGET', streamed_key(now, before), tenant)) or 0) end
  if used + more > most then return most, used end
end
