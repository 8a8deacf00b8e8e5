#!lua flags=allow-oom
-- batch_end: finalizing -> completed | failed | cancelled | expired, once the files of results and errors are complete.
-- Notifies the batch's webhook.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 batch | 3 parts_retention_ms
-- Reply {"ok"} | {"stale"} the batch is not finalizing
--- @include "lib/announce", "lib/clock", "lib/keys", "lib/outbox", "lib/text"
local now, id = clock(ARGV[1]), ARGV[2]
local key = batch_key(id)
local batch = redis.call('HMGET', key, 'state', 'outcome', 'tenant', 'hook')
if batch[1] ~= 'finalizing' then return {'stale'} end
redis.call('HSET', key, 'state', batch[2], 'ended', text(now))
redis.call('ZREM', ROOT .. ':batches', id)
redis.call('ZADD', ROOT .. ':batches_tidy', now + ARGV[3], id)
if batch[4] then outbox(now, 'msg_' .. id .. '_completed', 'batch.completed', id, batch[3], batch[4]) end
announce('batches')
return {'ok'}
