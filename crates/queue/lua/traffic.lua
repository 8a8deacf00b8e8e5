#!lua
-- traffic: gives a version of an endpoint a part of the new jobs. With 100 percent it becomes the current version.
-- KEYS  1 versions HASH (number -> version JSON, empty once deleted) |
--       2 endpoints HASH (name -> pointer, as `Traffic` reads it)
-- ARGV  1 name | 2 version | 3 percent
-- Reply {"ok", pointer} | {"unknown_endpoint", ""} | {"unknown_version", ""}
local pointer = redis.call('HGET', KEYS[2], ARGV[1])
if not pointer then return {'unknown_endpoint', ''} end
if redis.call('HSTRLEN', KEYS[1], ARGV[2]) == 0 then return {'unknown_version', ''} end
local current, canary, percent, previous = string.match(pointer, '^(%d+) ?(%d*) ?(%d*) ?(%d*)$')
if percent == '' then previous = canary end
if ARGV[2] == current then
  pointer = current
elseif ARGV[3] == '100' then
  -- After a rollback to the previous version, the one rolled back from is not kept as previous.
  pointer, previous = ARGV[2], previous ~= ARGV[2] and current or ''
else
  pointer = current .. ' ' .. ARGV[2] .. ' ' .. ARGV[3]
end
if previous ~= '' then pointer = pointer .. ' ' .. previous end
redis.call('HSET', KEYS[2], ARGV[1], pointer)
return {'ok', pointer}
