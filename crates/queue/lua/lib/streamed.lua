-- Memory that outputs take.
--- @include "lib/keys"

local STREAMED_MS = 3600000 -- outputs live this long after the last one

local function streamed_key(now, before) return ROOT .. ':streamed:' .. (math.floor(now / STREAMED_MS) - before) end

-- Counts bytes of outputs for a tenant, by hour. Outputs expire without notice, and the counter of their hour expires
-- with them.
local function take_streamed(tenant, by, now)
  local key = streamed_key(now, 0)
  if by <= 0 then return end
  if redis.call('HINCRBY', key, tenant, by) == by then redis.call('PEXPIRE', key, 2 * STREAMED_MS) end
end
