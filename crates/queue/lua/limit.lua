#!lua
-- limit: sets the limits and the budget of a scope, then retries what the scope blocks. A pause because of a spent
-- budget stays until the budget is raised or removed. A budget of 0 is spent from the start.
-- KEYS  1 root
-- ARGV  1 scope | 2 limits in the format of lib/limits.lua ("" = none) |
--       3 budget as "<micro-dollars per day>|<drain or stop>" ("" = none)
-- Reply {"ok"}
--- @include "lib/keys", "lib/resume", "lib/scope_keys"
local FOREVER_MS = '253402300799000' -- the end of the year 9999, as in budgets.rs
local scope, before = ARGV[1], redis.call('HGET', ROOT .. ':budgets', ARGV[1])
local function per_day(budget) return tonumber(string.match(budget or '', '^%d+') or math.huge) end
for key, value in pairs({limits = ARGV[2], budgets = ARGV[3]}) do
  if value == '' then
    redis.call('HDEL', ROOT .. ':' .. key, scope)
  else
    redis.call('HSET', ROOT .. ':' .. key, scope, value)
  end
end
if per_day(ARGV[3]) > per_day(before) then redis.call('HDEL', ROOT .. ':limits', paused_field(scope)) end
if per_day(ARGV[3]) == 0 then redis.call('HSET', ROOT .. ':limits', paused_field(scope), FOREVER_MS) end
if ARGV[3] == '' then redis.call('HDEL', ROOT .. ':stood', scope) end
redis.call('HDEL', ROOT .. ':rate', scope)
resume(scope)
return {'ok'}
