#!lua flags=allow-oom
-- demand_keep: notes that tenants use requirement sets, as shown by their jobs or deployed versions.
-- KEYS  1 demand_users, without a number | 2 demands_of, without a tenant
-- ARGV  then per use: number | tenant
-- Reply {"ok"}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for n = 1, #ARGV, 2 do
  redis.call('ZADD', KEYS[1] .. ':' .. ARGV[n], now, ARGV[n + 1])
  redis.call('SADD', KEYS[2] .. ':' .. ARGV[n + 1], ARGV[n])
end
return {'ok'}
