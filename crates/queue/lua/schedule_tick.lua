#!lua flags=allow-oom
-- schedule_tick: moves a schedule to its next due time, if its due time is still the one that the caller has read.
-- KEYS  1 root
-- ARGV  1 id | 2 due_ms as read | 3 the next due_ms ("" = none, the same = not yet) |
--       4 time of the next look at it, ms | 5 number of jobs created | 6 last tick that created one, ms ("" = none) |
--       7 its job | 8 error JSON of the last tick ("" = it created a job)
-- Reply "ok" | "moved"
--- @include "lib/keys"
local id, next_due = ARGV[1], ARGV[3]
local key, all = ROOT .. ':schedule:' .. id, ROOT .. ':schedules'
if redis.call('HGET', key, 'due') ~= ARGV[2] then return 'moved' end
if next_due == ARGV[2] then
  redis.call('ZADD', all, ARGV[4], id)
  return 'ok'
end
redis.call('HDEL', key, 'seen')
if next_due == '' then
  redis.call('HDEL', key, 'due')
  redis.call('ZREM', all, id)
else
  redis.call('HSET', key, 'due', next_due)
  redis.call('ZADD', all, ARGV[4], id)
end
if ARGV[6] ~= '' then
  redis.call('HINCRBY', key, 'ticks', ARGV[5])
  redis.call('HSET', key, 'last_at', ARGV[6], 'last_job', ARGV[7])
  redis.call('HDEL', key, 'last_error')
end
if ARGV[8] ~= '' then redis.call('HSET', key, 'last_error', ARGV[8]) end
return 'ok'
