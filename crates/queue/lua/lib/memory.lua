-- The memory that records of jobs take.
--- @include "lib/counts", "lib/keys"

-- What a record takes beside its spec, its input and a result: about what Redis needs for the hash, its places and
-- its idempotency key.
local RECORD_BYTES = 2048

-- A record takes so many bytes of its tenant's memory more, or less.
local function take_memory(id, tenant, by)
  if by == 0 then return end
  redis.call('HINCRBY', job_key(id), 'size', by)
  count(ROOT .. ':bytes', 't:' .. tenant, by)
end
