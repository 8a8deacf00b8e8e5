-- GPU time of a run.
--- @include "lib/keys"

local EXPECTED_MS = 1000 -- for an endpoint that has never run

local function expected_ms(tenant, endpoint)
  return tonumber(redis.call('HGET', ROOT .. ':cost', tenant .. ':' .. endpoint)) or EXPECTED_MS
end

-- How much slot time a run took, ms. The time that it waited for a slot inside its worker does not count. Time shared
-- with other jobs counts in equal parts.
local function taken_ms(job, now)
  return math.max(0, now - tonumber(job.leased) - (job.waited or 0)) / (job.sharers or 1)
end
