-- Signals to all replicas.
--- @include "lib/keys"

-- Signals to every replica that there is work of this kind, which any one of them can do.
local function announce(work) redis.call('PUBLISH', ROOT .. ':signal:all', 'work ' .. work) end
