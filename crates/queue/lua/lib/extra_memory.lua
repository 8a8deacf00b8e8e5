-- Memory of a tenant that is not taken by jobs.
--- @include "lib/counts", "lib/keys"

-- Changes the number of bytes that a tenant's schedules and pending webhook messages take. The key is `:beside`.
local function take_extra_memory(tenant, by) count(ROOT .. ':beside', tenant, by) end
