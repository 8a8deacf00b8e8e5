#!lua flags=allow-oom
-- pause: stores the state of a scope's daily budget. If the budget is spent, nothing more starts there until the day
-- ends; with a budget of 0, nothing ever starts.
-- KEYS  1 root
-- ARGV  1 scope | 2 the budget that the decision is based on | 3 state, "<day> <micro-dollars spent> <word>" |
--       4 until_ms ("" = no pause)
-- Reply {"ok", previous state ("" = unknown)} | {"stale"} the budget has changed
--- @include "lib/keys", "lib/scope_keys"
local FOREVER_MS = '253402300799000' -- the end of the year 9999, as in budgets.rs
local scope = ARGV[1]
if redis.call('HGET', ROOT .. ':budgets', scope) ~= ARGV[2] then return {'stale'} end
local before = redis.call('HGET', ROOT .. ':stood', scope) or ''
redis.call('HSET', ROOT .. ':stood', scope, ARGV[3])
local until_ms = string.match(ARGV[2], '^0+|') and FOREVER_MS or ARGV[4]
if until_ms ~= '' then redis.call('HSET', ROOT .. ':limits', paused_field(scope), until_ms) end
return {'ok', before}
