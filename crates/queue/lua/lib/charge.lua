-- GPU time that tenants are charged for.
--- @include "lib/class_queues", "lib/limits"

-- Charges a tenant `cost` milliseconds of GPU time.
local function charge(priority, class, tenant, cost)
  local place = priority .. ':' .. class .. ':' .. tenant
  charges[place] = (charges[place] or 0) + cost / limits('t:' .. tenant).weight
end
