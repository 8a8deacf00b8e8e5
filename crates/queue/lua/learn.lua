#!lua
-- learn: stores the memory that a version of an endpoint needed on a kind of GPU. The largest value ever seen is kept.
-- KEYS  1 needs HASH (<version> <GPU model> -> MiB) | 2 versions HASH (number -> version JSON, empty once deleted)
-- ARGV  1 version and GPU model | 2 MiB | 3 max fields
-- Reply {MiB kept, "" = no room for another kind of GPU, or the version is deleted}
if redis.call('HGET', KEYS[2], string.match(ARGV[1], '^%d+')) == '' then return {''} end
local before = redis.call('HGET', KEYS[1], ARGV[1])
if not before and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then return {''} end
local mib = math.max(tonumber(before or 0), tonumber(ARGV[2]))
redis.call('HSET', KEYS[1], ARGV[1], mib)
return {tostring(mib)}
