-- What a worker can take.
--- @include "lib/lane_parts"

-- Parses a capability, "<requirement set>:<GiB> ...": for each requirement set that the worker meets, the largest class
-- that fits.
local function capability_of(words)
  local capability = {}
  for requirement_set, gib in string.gmatch(words, '(%d+):(%d+)') do
    capability[tonumber(requirement_set)] = tonumber(gib)
  end
  return capability
end

local function is_within(capability, class)
  local requirement_set, gib = parts_of_class(class)
  return gib <= (capability[requirement_set] or -1)
end
