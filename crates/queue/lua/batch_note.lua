#!lua flags=allow-oom
-- batch_note: stores the progress of a batch. Moves nothing.
-- KEYS  1 root
-- ARGV  1 now_ms (unused) | 2 batch | 3 field | 4 value
-- Reply {"ok"} | {"stale"} the batch is gone
--- @include "lib/keys"
local key = batch_key(ARGV[2])
if redis.call('EXISTS', key) == 0 then return {'stale'} end
redis.call('HSET', key, ARGV[3], ARGV[4])
return {'ok'}
