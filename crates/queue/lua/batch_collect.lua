#!lua flags=allow-oom
-- batch_collect: the first `count` ended jobs are written down in these parts, so their records may go soon: those of a quick batch
-- would fill the memory. Two that collect at once collect once.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 batch | 3 collected before | 4 count | 5 retention_ms | then per part: its name
-- Reply {"ok"} | {"stale"} somebody else did
--- @include "lib/clock", "lib/keys", "lib/text"
local now, key = clock(ARGV[1]), batch_key(ARGV[2])
local batch = redis.call('HMGET', key, 'state', 'collected', 'tenant')
if batch[1] ~= 'running' or batch[2] ~= ARGV[3] then return {'stale'} end
for _, id in ipairs(redis.call('LRANGE', key .. ':ended', 0, ARGV[4] - 1)) do
  -- Dead letters stay as long as they are to.
  if not redis.call('ZSCORE', ROOT .. ':dead:' .. batch[3], id) then
    redis.call('ZADD', ROOT .. ':ended', 'XX', 'LT', now + ARGV[5], id)
  end
end
redis.call('LTRIM', key .. ':ended', ARGV[4], -1)
redis.call('HSET', key, 'collected', ARGV[3] + ARGV[4], 'collected_at', text(now))
for n = 6, #ARGV do redis.call('RPUSH', key .. ':parts', ARGV[n]) end
return {'ok'}
