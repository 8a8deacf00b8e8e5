#!lua flags=allow-oom
-- wake: passes a wake-up whose pull is gone to another parked pull that can use it. Moves no job.
-- KEYS  1 root
-- ARGV  none
-- Reply {"ok"}
--- @include "lib/lane_keys", "lib/wake"
for priority = 0, 2 do
  for _, class in ipairs(redis.call('ZRANGE', class_starts_key(priority), 0, -1)) do
    if wake(class) then return {'ok'} end
  end
end
return {'ok'}
