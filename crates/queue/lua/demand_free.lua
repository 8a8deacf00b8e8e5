#!lua flags=allow-oom
-- demand_free: removes requirement sets from tenants that still do not use them. A set without a tenant gives up its
-- number.
-- KEYS  1 demands HASH (set JSON -> number) | 2 demand_users, without a number | 3 demands_of, without a tenant
-- ARGV  1 unused since before this time, unix ms | then per use: number | tenant
-- Reply {number of sets that gave up their number}
local gone = {}
for n = 2, #ARGV, 2 do
  local number, tenant = ARGV[n], ARGV[n + 1]
  local users = KEYS[2] .. ':' .. number
  local seen = redis.call('ZSCORE', users, tenant)
  if seen and tonumber(seen) <= tonumber(ARGV[1]) then
    redis.call('ZREM', users, tenant)
    redis.call('SREM', KEYS[3] .. ':' .. tenant, number)
    if redis.call('EXISTS', users) == 0 then gone[number] = true end
  end
end
local known, freed = next(gone) and redis.call('HGETALL', KEYS[1]) or {}, 0
for n = 1, #known, 2 do
  local number = known[n + 1]
  if gone[number] then
    redis.call('HDEL', KEYS[1], known[n])
    redis.call('HSET', KEYS[1], '{"regions":["\\u0000free ' .. number .. '"]}', number) -- the placeholder of demand.lua
    freed = freed + 1
  end
end
return {freed}
