#!lua flags=allow-oom
-- pause: writes down how a gate stands to its budget of a day. Where that is reached nothing more starts there until the day is over, and
-- where it is 0 on no day.
-- KEYS  1 root
-- ARGV  1 gate | 2 the budget that this was decided by | 3 how it stands, as "<day> <micro-dollars spent> <word>" |
--       4 until_ms ("" = no pause)
-- Reply {"ok", how it stood before ("" = not known)} | {"stale"} it has another budget by now
--- @include "lib/keys", "lib/scope_keys"
local FOREVER_MS = '253402300799000' -- the end of the year 9999, as in budgets.rs
local scope = ARGV[1]
if redis.call('HGET', ROOT .. ':budgets', scope) ~= ARGV[2] then return {'stale'} end
local before = redis.call('HGET', ROOT .. ':stood', scope) or ''
redis.call('HSET', ROOT .. ':stood', scope, ARGV[3])
local until_ms = string.match(ARGV[2], '^0+|') and FOREVER_MS or ARGV[4]
if until_ms ~= '' then redis.call('HSET', ROOT .. ':limits', paused_field(scope), until_ms) end
return {'ok', before}
