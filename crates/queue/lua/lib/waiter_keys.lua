-- Keys of the lists of parked pulls.
--- @include "lib/keys"

local function parked_key(requirement_set) return ROOT .. ':parked:' .. requirement_set end
local function warm_key(suffix) return ROOT .. ':warm:' .. suffix end -- <class>:<tenant>:<endpoint>
