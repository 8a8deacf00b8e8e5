-- Idempotency keys.
--- @include "lib/keys"

local function idempotency_key(tenant, hash) return ROOT .. ':i:' .. tenant .. ':' .. hash end
local function schedule_key_key(tenant, hash) return ROOT .. ':i:' .. tenant .. ':s:' .. hash end

-- What is kept under an idempotency key: "<request hash> <job id> ..." of a submit, "<schedule id> <request hash>" of
-- a schedule, whose hash has 64 digits. A schedule's tick is a submit whose request hash is the schedule's id.
local function is_of_schedule(stored)
  local hash = string.match(stored, '^sch_%x+ (%x+)$')
  return hash ~= nil and #hash == 64
end
