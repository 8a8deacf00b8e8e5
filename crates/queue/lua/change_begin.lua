#!lua flags=allow-oom
-- change_begin: logs a change before it is made. Works when Redis is full, because the remedy for that is a change too.
-- KEYS  1 changes HASH
-- ARGV  1 id | 2 change (JSON) | 3 max open changes
-- Reply 1 done | 0 too many are open
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
