#!lua
-- limit: sets what may pass a gate, and lets those held there try again.
-- KEYS  1 root
-- ARGV  1 gate | 2 limits as "weight|max_running|max_open|starts_per_minute" ("" = none)
-- Reply {"ok"}
if ARGV[2] == '' then
  redis.call('HDEL', ROOT .. ':limits', ARGV[1])
else
  redis.call('HSET', ROOT .. ':limits', ARGV[1], ARGV[2])
end
redis.call('HDEL', ROOT .. ':rate', ARGV[1])
resume(ARGV[1])
return {'ok'}
