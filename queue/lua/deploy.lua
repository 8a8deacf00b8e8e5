#!lua
-- deploy: adds a version of an endpoint and points traffic at it; the same spec as the current version changes nothing.
-- KEYS  1 versions HASH (number -> version JSON) | 2 endpoints HASH (name -> current number)
-- ARGV  1 name | 2 created_ms | 3 spec JSON, an object
-- Reply {number, version JSON, "new" | "same"}
local current = redis.call('HGET', KEYS[2], ARGV[1])
if current then
  local held = redis.call('HGET', KEYS[1], current)
  -- The spec is the end of the stored text, byte for byte: its first member follows the three that deploy adds.
  if held and string.sub(held, -(#ARGV[3] - 1)) == string.sub(ARGV[3], 2) then return {current, held, 'same'} end
end
local number = (tonumber(current) or 0) + 1
local version = '{"name":"' .. ARGV[1] .. '","version":' .. number .. ',"created_ms":' .. ARGV[2] .. ',' .. string.sub(ARGV[3], 2)
redis.call('HSET', KEYS[1], number, version)
redis.call('HSET', KEYS[2], ARGV[1], number)
return {tostring(number), version, 'new'}
