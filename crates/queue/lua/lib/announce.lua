-- Signals to all replicas.
--- @include "lib/keys"

-- Tells every replica that there is work which any of them may do.
local function announce(work) redis.call('PUBLISH', ROOT .. ':signal:all', 'work ' .. work) end
