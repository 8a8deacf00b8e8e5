#!lua flags=allow-oom
-- demand: the number of a set of demands, which it keeps for ever; equal demands have the same. 0 is for those that ask for nothing.
-- KEYS  1 demands
-- ARGV  1 the demands, JSON | 2 most numbers
-- Reply {the number, "" when there are too many already}
local number = redis.call('HGET', KEYS[1], ARGV[1])
if number then return {number} end
local next = redis.call('HLEN', KEYS[1]) + 1
if next > tonumber(ARGV[2]) then return {''} end
redis.call('HSET', KEYS[1], ARGV[1], next)
return {tostring(next)}
