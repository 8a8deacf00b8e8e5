#!lua
-- sweep_keep: defers the deletion of an object that a deploy is about to name.
-- KEYS  1 orphans ZSET | 2 sweeps HASH of the tenant (object -> end of its claim, unix ms)
-- ARGV  1 tenant | 2 object | 3 for how long, ms
-- Reply {"kept"} | {"claimed"} it is being deleted
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or 0) > now then return {'claimed'} end
redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', now + ARGV[3]), ARGV[1] .. '/' .. ARGV[2])
return {'kept'}
