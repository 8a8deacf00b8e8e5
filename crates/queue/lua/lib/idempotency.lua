-- Idempotency keys.
--- @include "lib/keys"

local function idempotency_key(tenant, hash) return ROOT .. ':i:' .. tenant .. ':' .. hash end
local function schedule_key_key(tenant, hash) return ROOT .. ':i:' .. tenant .. ':s:' .. hash end

-- Whether the value stored under an idempotency key belongs to a schedule. A submit stores "<request hash> <job id>
-- ...", a schedule "<schedule id> <request hash>" with a hash of 64 digits. A tick of a schedule is a submit whose
-- request hash is the schedule's ID, so the ID alone does not decide.
local function is_of_schedule(stored)
  local hash = string.match(stored, '^sch_%x+ (%x+)$')
  return hash ~= nil and #hash == 64
end
