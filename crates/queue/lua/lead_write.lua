#!lua flags=allow-oom
-- lead_write: writes a field if no other leader has been elected since the caller's term. A leader that was paused and
-- has lost its leadership changes nothing.
-- KEYS  1 lead HASH | 2 the HASH to write
-- ARGV  1 term | 2 field | 3 value ("" = delete it)
-- Reply {"ok"} | {"stale"}
if redis.call('HGET', KEYS[1], 'term') ~= ARGV[1] then return {'stale'} end
if ARGV[3] == '' then redis.call('HDEL', KEYS[2], ARGV[2]) else redis.call('HSET', KEYS[2], ARGV[2], ARGV[3]) end
return {'ok'}
