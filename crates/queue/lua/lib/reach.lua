-- What a worker can take.
--- @include "lib/lane_parts"

-- What a worker can take: by demands the largest class, GiB; from "<demands>:<GiB> ...".
local function reach_of(words)
  local reach = {}
  for demands, gib in string.gmatch(words, '(%d+):(%d+)') do reach[tonumber(demands)] = tonumber(gib) end
  return reach
end

local function is_within(reach, class)
  local demands, gib = parts_of_class(class)
  return gib <= (reach[demands] or -1)
end
