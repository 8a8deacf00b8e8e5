#!lua flags=allow-oom
-- undeploy: deletes a version that gets no new jobs, or an endpoint with all its versions. A deleted version leaves an
-- empty field, so that its number is not used again: jobs, histories and workers identify a version by its number.
-- Notes what is left to do: the deletion itself, until its jobs are ended, and the objects that it no longer needs.
-- KEYS  1 versions HASH (number -> version JSON, empty once deleted) |
--       2 endpoints HASH (name -> pointer, as `Traffic` reads it) |
--       3 deleted HASH (name -> number of its deleted versions) | 4 floors HASH | 5 needs HASH |
--       6 deletions HASH | 7 orphans ZSET
-- ARGV  1 tenant | 2 name | 3 version ("" = the endpoint)
-- Reply {"ok", deletion JSON, object...} | {"unknown_endpoint"} | {"unknown_version"} | {"has_traffic"}
local tenant, name, version = ARGV[1], ARGV[2], ARGV[3]
local pointer = redis.call('HGET', KEYS[2], name)
if not pointer then return {'unknown_endpoint'} end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local numbers, objects, is_known = {}, {}, {}

-- The object may be needed by other versions: who deletes it checks that. GT: an upload that was announced defers it.
local function orphan(object)
  if is_known[object] then return end
  is_known[object] = true
  redis.call('ZADD', KEYS[7], 'GT', now, tenant .. '/' .. object)
  objects[#objects + 1] = object
end

local function empty(number)
  local stored = redis.call('HGET', KEYS[1], number)
  if not stored or stored == '' then return end
  redis.call('HSET', KEYS[1], number, '')
  redis.call('HINCRBY', KEYS[3], name, 1)
  numbers[#numbers + 1] = tonumber(number)
  local is_sound, spec = pcall(cjson.decode, stored)
  if not is_sound or type(spec) ~= 'table' then return end
  if type(spec.package_sha256) == 'string' then orphan('packages/' .. spec.package_sha256) end
  for _, weight in ipairs(type(spec.weights) == 'table' and spec.weights or {}) do
    if type(weight.url) ~= 'string' and type(weight.sha256) == 'string' then orphan('weights/' .. weight.sha256) end
  end
end

if version ~= '' then
  if redis.call('HSTRLEN', KEYS[1], version) == 0 then return {'unknown_version'} end
  local current, canary, percent, previous = string.match(pointer, '^(%d+) ?(%d*) ?(%d*) ?(%d*)$')
  if percent == '' then canary, previous = '', canary end
  if version == current or version == canary then return {'has_traffic'} end
  if version == previous then
    pointer = current
    if canary ~= '' then pointer = pointer .. ' ' .. canary .. ' ' .. percent end
    redis.call('HSET', KEYS[2], name, pointer)
  end
  empty(version)
  for _, field in ipairs(redis.call('HKEYS', KEYS[5])) do
    if string.match(field, '^%d+') == version then redis.call('HDEL', KEYS[5], field) end
  end
  local floor = redis.call('HGET', KEYS[4], tenant .. ':' .. name)
  if floor and string.match(floor, '^%d+') == version then redis.call('HDEL', KEYS[4], tenant .. ':' .. name) end
else
  for _, number in ipairs(redis.call('HKEYS', KEYS[1])) do empty(number) end
  redis.call('HDEL', KEYS[2], name)
  redis.call('HDEL', KEYS[4], tenant .. ':' .. name)
  redis.call('DEL', KEYS[5])
end

local id = tenant .. ':' .. name .. ':' .. version .. ':' .. now
local text = '{"id":"' .. id .. '","tenant":"' .. tenant .. '","endpoint":"' .. name .. '","versions":['
  .. table.concat(numbers, ',') .. '],"is_whole":' .. tostring(version == '') .. ',"at_ms":' .. now .. '}'
redis.call('HSET', KEYS[6], id, text)
local reply = {'ok', text}
for _, object in ipairs(objects) do reply[#reply + 1] = object end
return reply
