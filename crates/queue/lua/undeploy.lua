#!lua flags=allow-oom
-- undeploy: deletes a version that gets no new jobs, or an endpoint with all its versions. A deleted version leaves an
-- empty field, so that its number is not used again: jobs, histories and workers identify a version by its number.
-- KEYS  1 versions HASH (number -> version JSON, empty once deleted) |
--       2 endpoints HASH (name -> pointer, as `Traffic` reads it) |
--       3 deleted HASH (name -> number of its deleted versions) | 4 floors HASH | 5 needs HASH
-- ARGV  1 tenant | 2 name | 3 version ("" = the endpoint)
-- Reply {"ok", number deleted} | {"unknown_endpoint", 0} | {"unknown_version", 0} | {"has_traffic", 0}
local tenant, name, version = ARGV[1], ARGV[2], ARGV[3]
local pointer = redis.call('HGET', KEYS[2], name)
if not pointer then return {'unknown_endpoint', 0} end

local function empty(number)
  if redis.call('HSTRLEN', KEYS[1], number) == 0 then return 0 end
  redis.call('HSET', KEYS[1], number, '')
  redis.call('HINCRBY', KEYS[3], name, 1)
  return 1
end

if version ~= '' then
  if redis.call('HSTRLEN', KEYS[1], version) == 0 then return {'unknown_version', 0} end
  local current, canary, percent, previous = string.match(pointer, '^(%d+) ?(%d*) ?(%d*) ?(%d*)$')
  if percent == '' then canary, previous = '', canary end
  if version == current or version == canary then return {'has_traffic', 0} end
  if version == previous then
    pointer = current
    if canary ~= '' then pointer = pointer .. ' ' .. canary .. ' ' .. percent end
    redis.call('HSET', KEYS[2], name, pointer)
  end
  return {'ok', empty(version)}
end

local deleted = 0
for _, number in ipairs(redis.call('HKEYS', KEYS[1])) do deleted = deleted + empty(number) end
redis.call('HDEL', KEYS[2], name)
redis.call('HDEL', KEYS[4], tenant .. ':' .. name)
redis.call('DEL', KEYS[5])
return {'ok', deleted}
