#!lua flags=allow-oom
-- schedule_drop: a schedule -> nothing. Its guard is deleted too, so that `submit` rejects ticks that a replica has
-- planned before.
-- KEYS  1 root
-- ARGV  1 tenant | 2 id
-- Reply "ok" | "not_found"
--- @include "lib/extra_memory", "lib/keys"
local id = ARGV[2]
local key = ROOT .. ':schedule:' .. id
if redis.call('HGET', key, 'tenant') ~= ARGV[1] then return 'not_found' end
-- A schedule of the previous release has no size.
take_extra_memory(ARGV[1], -(tonumber(redis.call('HGET', key, 'size') or 0) or 0))
redis.call('DEL', key, ROOT .. ':b:' .. id)
redis.call('ZREM', ROOT .. ':schedules', id)
redis.call('ZREM', ROOT .. ':schedules:' .. ARGV[1], id)
return 'ok'
