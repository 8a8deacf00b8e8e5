-- Isolates jobs of one call: a record that cannot be read does not stop the others.
--- @include "lib/attempt", "lib/counts", "lib/departures", "lib/quarantine"

local function conclude(id, state, counts, stops, ends, done, ...)
  if done then return true, ... end
  uncount(counts)
  for n = #stopped, stops + 1, -1 do stopped[n] = nil end
  for n = #ended, ends + 1, -1 do ended[n] = nil end
  quarantine(id, state, why_of((...)))
  return false
end

-- Runs `body` for one job of a call. After an error, the job's counts are undone and the job goes to the quarantine.
-- `state` is the job's state before the call, if the job was not loaded with `load`. Returns whether `body` succeeded,
-- and what it returned.
local function guarded(id, state, body, ...)
  return conclude(id, state, #journal, #stopped, #ended, pcall(body, ...))
end
