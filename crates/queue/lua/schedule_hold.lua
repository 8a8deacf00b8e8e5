#!lua flags=allow-oom
-- schedule_hold: pauses or resumes a schedule. Changes nothing if it is already in that state.
-- KEYS  1 root
-- ARGV  1 tenant | 2 id | 3 due_ms to resume with ("" = pause)
-- Reply "ok" | "not_found"
--- @include "lib/keys"
local id, due = ARGV[2], ARGV[3]
local key = ROOT .. ':schedule:' .. id
if redis.call('HGET', key, 'tenant') ~= ARGV[1] then return 'not_found' end
local paused = redis.call('HEXISTS', key, 'paused') == 1
if due == '' and not paused then
  redis.call('HSET', key, 'paused', 1)
  redis.call('HDEL', key, 'due', 'seen')
  redis.call('ZREM', ROOT .. ':schedules', id)
  -- A new guard: `submit` rejects ticks of a replica that has read the schedule before.
  redis.call('HINCRBY', ROOT .. ':b:' .. id, 'fed', 1)
elseif due ~= '' and paused then
  redis.call('HDEL', key, 'paused')
  redis.call('HSET', key, 'due', due)
  redis.call('ZADD', ROOT .. ':schedules', due, id)
  redis.call('HINCRBY', ROOT .. ':b:' .. id, 'fed', 1)
end
return 'ok'
