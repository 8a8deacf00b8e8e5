-- Keys of the lists of parked pulls.
--- @include "lib/keys"

local function parked_key(demands) return ROOT .. ':parked:' .. demands end
local function warm_key(place) return ROOT .. ':warm:' .. place end -- <class>:<tenant>:<endpoint>
