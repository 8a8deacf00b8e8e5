-- The memory that outputs take.
--- @include "lib/keys"

local STREAMED_MS = 3600000 -- as long as outputs live after the last

local function streamed_key(now, before) return ROOT .. ':streamed:' .. (math.floor(now / STREAMED_MS) - before) end

-- Outputs of a tenant's jobs take so many bytes more. They go by themselves, and what was counted of them with its
-- hour.
local function take_streamed(tenant, by, now)
  local key = streamed_key(now, 0)
  if by <= 0 then return end
  if redis.call('HINCRBY', key, tenant, by) == by then redis.call('PEXPIRE', key, 2 * STREAMED_MS) end
end
