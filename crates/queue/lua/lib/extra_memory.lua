-- The memory that a tenant takes beside its jobs.
--- @include "lib/counts", "lib/keys"

-- What a tenant's schedules and the webhook messages that it has not got yet take: so many bytes more, or less.
local function take_extra_memory(tenant, by) count(ROOT .. ':beside', tenant, by) end
