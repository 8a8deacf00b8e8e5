#!lua flags=allow-oom
-- batch_collect: the first `count` ended jobs are written down in these parts. Two that collect at once collect once.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 batch | 3 collected before | 4 count | then per part: its name
-- Reply {"ok"} | {"stale"} somebody else did
local now, key = clock(ARGV[1]), batch_key(ARGV[2])
local batch = redis.call('HMGET', key, 'state', 'collected')
if batch[1] ~= 'running' or batch[2] ~= ARGV[3] then return {'stale'} end
redis.call('LTRIM', key .. ':ended', ARGV[4], -1)
redis.call('HSET', key, 'collected', ARGV[3] + ARGV[4], 'collected_at', text(now))
for n = 5, #ARGV do redis.call('RPUSH', key .. ':parts', ARGV[n]) end
return {'ok'}
