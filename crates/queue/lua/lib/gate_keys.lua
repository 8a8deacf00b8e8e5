-- Names and keys of gates (lib/limits), and of the fields of `:limits` that belong to one.
--- @include "lib/keys"

local function held_key(gate) return ROOT .. ':held:' .. gate end
local function waiting_key(gate) return ROOT .. ':waiting:' .. gate end
local function paused_field(gate) return 'p:' .. gate end
local function disabled_field(gate) return 'd:' .. gate end

local function key_gate(tenant, ckey) return 'k:' .. tenant .. ':' .. string.match(ckey, '^%d+:(.*)$') end

-- How many jobs with its key may run beside one with this `ckey`.
local function key_max(ckey) return tonumber(string.match(ckey, '^%d+')) end
