#!lua flags=allow-oom
-- change_begin: writes down that something is about to be changed. Also where Redis is full: what helps then is a change, too.
-- KEYS  1 changes HASH
-- ARGV  1 id | 2 change (JSON) | 3 most that may be open
-- Reply 1 done | 0 too many are open
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
