#!lua
-- learn: what a version of an endpoint was seen to need of a kind of card; the largest that was ever seen stands.
-- KEYS  1 needs HASH (<version> <GPU model> -> MiB)
-- ARGV  1 version and GPU model | 2 MiB | 3 most fields
-- Reply {MiB that stand, "" where there was no room for another kind of card}
local before = redis.call('HGET', KEYS[1], ARGV[1])
if not before and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then return {''} end
local mib = math.max(tonumber(before or 0), tonumber(ARGV[2]))
redis.call('HSET', KEYS[1], ARGV[1], mib)
return {tostring(mib)}
