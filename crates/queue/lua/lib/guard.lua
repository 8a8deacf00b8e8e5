-- One job of a call whose record cannot be read keeps none of the others from its work.
--- @include "lib/attempt", "lib/counts", "lib/departures", "lib/quarantine"

local function conclude(id, state, counts, stops, ends, done, ...)
  if done then return true, ... end
  uncount(counts)
  for n = #stopped, stops + 1, -1 do stopped[n] = nil end
  for n = #ended, ends + 1, -1 do ended[n] = nil end
  quarantine(id, state, why_of((...)))
  return false
end

-- Runs `body` for one job of a call. What it raises is that job's own: what it has counted is taken back, the job
-- goes to the quarantine, and the others go on. Returns whether all went well, and what `body` returned. `state`: the
-- job's before, if it was not loaded with `load`.
local function guarded(id, state, body, ...)
  return conclude(id, state, #journal, #stopped, #ended, pcall(body, ...))
end
