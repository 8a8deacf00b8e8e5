#!lua flags=allow-oom
-- role: gives the caller a role for `ttl_ms`, unless another replica has it. Works when Redis is full, because the
-- duties that free memory need a role.
-- KEYS  1 root
-- ARGV  1 role | 2 replica | 3 ttl_ms
-- Reply {"yes"} | {"no"}
--- @include "lib/keys"
local key = ROOT .. ':role:' .. ARGV[1]
local holder = redis.call('GET', key)
if holder and holder ~= ARGV[2] then return {'no'} end
redis.call('SET', key, ARGV[2], 'PX', ARGV[3])
return {'yes'}
