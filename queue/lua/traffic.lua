#!lua
-- traffic: gives a version of an endpoint a part of new jobs; with all of them it is the current one.
-- KEYS  1 versions HASH (number -> version JSON) | 2 endpoints HASH (name -> "current" or "current canary percent")
-- ARGV  1 name | 2 version | 3 percent
-- Reply {"ok", pointer} | {"unknown_endpoint", ""} | {"unknown_version", ""}
local pointer = redis.call('HGET', KEYS[2], ARGV[1])
if not pointer then return {'unknown_endpoint', ''} end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return {'unknown_version', ''} end
local current = string.match(pointer, '^%d+')
if ARGV[3] == '100' or ARGV[2] == current then
  pointer = ARGV[2]
else
  pointer = current .. ' ' .. ARGV[2] .. ' ' .. ARGV[3]
end
redis.call('HSET', KEYS[2], ARGV[1], pointer)
return {'ok', pointer}
