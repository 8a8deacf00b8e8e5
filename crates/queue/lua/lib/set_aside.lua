-- The quarantine: jobs whose record cannot be read. quarantine.rs lists them.
--- @include "lib/clock", "lib/keys"

local QUARANTINE, WHY = ROOT .. ':quarantine', ROOT .. ':quarantine_why'

-- Removes a job from all lists that would lead back to it, and stores why.
local function set_aside(id, why)
  redis.call('ZADD', QUARANTINE, 'NX', asked_at or clock(''), id)
  redis.call('HSET', WHY, id, why)
  for _, list in ipairs({':leases', ':scheduled', ':deadlines', ':ended'}) do redis.call('ZREM', ROOT .. list, id) end
  redis.call('ZREM', ROOT .. ':settle', 'ready ' .. id)
end
