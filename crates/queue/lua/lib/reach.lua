-- What a worker can take.
--- @include "lib/lane_parts"

-- What a worker can take: by demands the largest class, GiB; from "<demands>:<GiB> ...".
local function reach_of(words)
  local reach = {}
  for requirement_set, gib in string.gmatch(words, '(%d+):(%d+)') do reach[tonumber(requirement_set)] = tonumber(gib) end
  return reach
end

local function is_within(reach, class)
  local requirement_set, gib = parts_of_class(class)
  return gib <= (reach[requirement_set] or -1)
end
