-- Names and keys of limit scopes (lib/limits), and their fields in `:limits`.
--- @include "lib/keys"

local function blocked_key(scope) return ROOT .. ':held:' .. scope end
local function waiting_key(scope) return ROOT .. ':waiting:' .. scope end
local function paused_field(scope) return 'p:' .. scope end
local function disabled_field(scope) return 'd:' .. scope end

local function key_scope(tenant, concurrency_key)
  return 'k:' .. tenant .. ':' .. string.match(concurrency_key, '^%d+:(.*)$')
end

-- How many jobs with this concurrency key may run at once.
local function key_max(concurrency_key) return tonumber(string.match(concurrency_key, '^%d+')) end
