-- GPU time that tenants are charged for.
--- @include "lib/class_queues", "lib/limits"

-- Charges a tenant `cost` milliseconds of GPU time.
local function charge(priority, class, tenant, cost)
  local account = priority .. ':' .. class .. ':' .. tenant
  charges[account] = (charges[account] or 0) + cost / limits('t:' .. tenant).weight
end
