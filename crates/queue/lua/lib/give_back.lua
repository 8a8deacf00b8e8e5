-- The memory that a deleted record gives back.
--- @include "lib/counts", "lib/keys", "lib/recount"

-- A record is deleted. `ix` is its entry in the tenant's index, as far as it has one.
local function give_back_memory(tenant, ix, size)
  local bytes = tonumber(size or 0) or 0
  if bytes == 0 then return end
  count(ROOT .. ':bytes', 't:' .. tenant, -bytes)
  if ix and is_recounting() and is_recounted(tenant, ix) then count(RECOUNT, 'bytes t:' .. tenant, -bytes) end
end
