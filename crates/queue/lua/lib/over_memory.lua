-- The memory limit of a tenant.
--- @include "lib/counts", "lib/keys", "lib/limits", "lib/streamed"

-- Whether `more` bytes exceed a tenant's memory limit: returns the limit and the bytes in use, nil if there is room.
-- `share` is the limit of tenants without one of their own, "" if there is room for all.
local function over_memory(tenant, more, share, now)
  local max = limits('t:' .. tenant).max_memory or tonumber(share)
  if not max then return nil end
  local used = counted(ROOT .. ':bytes', 't:' .. tenant) + counted(ROOT .. ':beside', tenant)
  for before = 0, 1 do used = used + (tonumber(redis.call('HGET', streamed_key(now, before), tenant)) or 0) end
  if used + more > max then return max, used end
end
