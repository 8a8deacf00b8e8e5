-- What a run takes of a card.
--- @include "lib/keys"

local EXPECTED_MS = 1000 -- of an endpoint that has never run

local function expected_ms(tenant, endpoint)
  return tonumber(redis.call('HGET', ROOT .. ':cost', tenant .. ':' .. endpoint)) or EXPECTED_MS
end

-- What a run has taken of its slot: not what it waited for one inside its worker, behind whoever ran there; and of
-- what it shared with others, its part.
local function taken_ms(job, now) return math.max(0, now - tonumber(job.leased) - (job.waited or 0)) / (job.sharers or 1) end
