-- Keys of one job, besides its record.
--- @include "lib/keys"

local function events_key(id) return ROOT .. ':e:' .. id end
local function outputs_key(id) return ROOT .. ':o:' .. id end
local function dependents_key(id) return ROOT .. ':d:' .. id end
