-- Entries of streams.
--- @include "lib/clock"

-- Appends an entry and returns its ID. The ID carries the time at which the job became ready. It is `wanted` if given,
-- then the time of a test's clock; if the stream already has a later ID, Redis chooses one.
local function append(stream, raw, wanted)
  for _, at in ipairs({wanted or '*', MANUAL and MANUAL .. '-*' or nil}) do
    local entry = at ~= '*' and redis.pcall('XADD', stream, at, 'j', raw)
    if type(entry) == 'string' then return entry end
  end
  return redis.call('XADD', stream, '*', 'j', raw)
end
