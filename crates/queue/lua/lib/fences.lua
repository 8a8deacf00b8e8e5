-- Fences.

local function fence_counter(fence) return tonumber(string.match(fence or '0', '^%d+')) end
