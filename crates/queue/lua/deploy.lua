#!lua
-- deploy: adds a version of an endpoint and gives it a part of the new jobs. Adds none if the spec equals that of a
-- version that gets new jobs.
-- KEYS  1 versions HASH (number -> version JSON, empty once deleted) |
--       2 endpoints HASH (name -> pointer, as `Traffic` reads it) |
--       3 deleted HASH (name -> number of its deleted versions) | 4 sweeps HASH of the tenant (sweep_claim.lua)
-- ARGV  1 name | 2 created_ms | 3 spec JSON, an object | 4 percent | 5 max versions, deleted ones excluded |
--       6 max names, deleted ones included | 7 "swept" of KEYS 4 before its objects were found stored ("" = they were
--       not looked for) | then its objects
-- Reply {pointer, version JSON, "new" | "same"} | {"", "", "versions" | "names"} the limit is reached |
--       {"", "", "swept"} objects are or were being deleted: look for them again
local pointer = redis.call('HGET', KEYS[2], ARGV[1])
local current, canary, percent, previous = string.match(pointer or '', '^(%d+) ?(%d*) ?(%d*) ?(%d*)$')
if percent == '' then canary, previous = '', canary end

local function point_at(number)
  local before = previous or ''
  if tostring(number) == current then
    if ARGV[4] ~= '100' then return end
    pointer = current
  elseif not current or ARGV[4] == '100' then
    pointer, before = tostring(number), current or ''
  else
    pointer = current .. ' ' .. number .. ' ' .. ARGV[4]
  end
  if before ~= '' then pointer = pointer .. ' ' .. before end
  redis.call('HSET', KEYS[2], ARGV[1], pointer)
end

for _, number in ipairs({canary or '', current or ''}) do
  local stored = redis.call('HGET', KEYS[1], number)
  -- The stored text ends with the spec, byte for byte: its first member follows the three that deploy adds.
  if stored and string.sub(stored, -(#ARGV[3] - 1)) == string.sub(ARGV[3], 2) then
    point_at(number)
    return {pointer, stored, 'same'}
  end
end
if ARGV[7] ~= '' then
  if ARGV[7] ~= (redis.call('HGET', KEYS[4], 'swept') or '0') then return {'', '', 'swept'} end
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  for n = 8, #ARGV do
    if tonumber(redis.call('HGET', KEYS[4], ARGV[n]) or 0) > now then return {'', '', 'swept'} end
  end
end
local made = redis.call('HLEN', KEYS[1])
-- Counts the names of endpoints and of endpoints that are deleted as a whole. An endpoint of which some versions are
-- deleted has a field in both hashes.
local function count_names()
  local known = redis.call('HLEN', KEYS[2])
  for _, name in ipairs(redis.call('HKEYS', KEYS[3])) do
    if redis.call('HEXISTS', KEYS[2], name) == 0 then known = known + 1 end
  end
  return known
end
local names_max = tonumber(ARGV[6])
if made == 0 and redis.call('HLEN', KEYS[2]) + redis.call('HLEN', KEYS[3]) >= names_max
    and count_names() >= names_max then
  return {'', '', 'names'}
end
if made - tonumber(redis.call('HGET', KEYS[3], ARGV[1]) or 0) >= tonumber(ARGV[5]) then return {'', '', 'versions'} end
-- The field of a deleted version stays, so that no number is given out twice. The current version may be any of them.
local number = made + 1
local version = '{"name":"' .. ARGV[1] .. '","version":' .. number .. ',"created_ms":' .. ARGV[2] .. ','
  .. string.sub(ARGV[3], 2)
redis.call('HSET', KEYS[1], number, version)
point_at(number)
return {pointer, version, 'new'}
