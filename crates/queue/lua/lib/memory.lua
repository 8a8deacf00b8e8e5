-- Memory that the records of jobs take.
--- @include "lib/counts", "lib/keys"

-- Bytes of a record besides its spec, input and result: approximately what Redis needs for the hash, its list entries
-- and its idempotency key.
local RECORD_BYTES = 2048

-- Changes the number of bytes that a record takes of its tenant's memory.
local function take_memory(id, tenant, by)
  if by == 0 then return end
  redis.call('HINCRBY', job_key(id), 'size', by)
  count(ROOT .. ':bytes', 't:' .. tenant, by)
end
