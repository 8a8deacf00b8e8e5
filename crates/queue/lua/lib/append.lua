-- Entries of streams.
--- @include "lib/clock"

-- A stream's entry carries the time since when the job is ready. A test's clock, or what is wanted, may stand behind
-- the stream's last entry.
local function append(stream, raw, wanted)
  for _, at in ipairs({wanted or '*', MANUAL and MANUAL .. '-*' or nil}) do
    local entry = at ~= '*' and redis.pcall('XADD', stream, at, 'j', raw)
    if type(entry) == 'string' then return entry end
  end
  return redis.call('XADD', stream, '*', 'j', raw)
end
