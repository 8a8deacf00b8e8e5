#!lua flags=allow-oom
-- batch_collect: records that the first `count` ended jobs of a batch are written to these parts. Their records may
-- then be deleted soon, because the jobs of a fast batch would fill the memory. Of two concurrent calls, one succeeds.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 batch | 3 number collected before | 4 count | 5 retention_ms |
--       then per part: its name
-- Reply {"ok"} | {"stale"} another call has collected them
--- @include "lib/clock", "lib/keys", "lib/text"
local now, key = clock(ARGV[1]), batch_key(ARGV[2])
local batch = redis.call('HMGET', key, 'state', 'collected', 'tenant')
if batch[1] ~= 'running' or batch[2] ~= ARGV[3] then return {'stale'} end
for _, id in ipairs(redis.call('LRANGE', key .. ':ended', 0, ARGV[4] - 1)) do
  -- Dead letters keep their own retention.
  if not redis.call('ZSCORE', ROOT .. ':dead:' .. batch[3], id) then
    redis.call('ZADD', ROOT .. ':ended', 'XX', 'LT', now + ARGV[5], id)
  end
end
redis.call('LTRIM', key .. ':ended', ARGV[4], -1)
redis.call('HSET', key, 'collected', ARGV[3] + ARGV[4], 'collected_at', text(now))
for n = 6, #ARGV do redis.call('RPUSH', key .. ':parts', ARGV[n]) end
return {'ok'}
