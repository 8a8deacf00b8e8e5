-- Memory of a deleted record.
--- @include "lib/counts", "lib/keys", "lib/recount"

-- Subtracts a deleted record from its tenant's memory. `ix` is its entry in the tenant's index, nil if unknown.
local function give_back_memory(tenant, ix, size)
  local bytes = tonumber(size or 0) or 0
  if bytes == 0 then return end
  count(ROOT .. ':bytes', 't:' .. tenant, -bytes)
  if ix and is_recounting() and is_recounted(tenant, ix) then count(RECOUNT, 'bytes t:' .. tenant, -bytes) end
end
