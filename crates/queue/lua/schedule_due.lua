#!lua flags=allow-oom
-- schedule_due: lists the schedules that are due, each with the time at which its due tick was first seen. Replicas
-- that race, or that take over from one that died, therefore plan the same jobs.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 max schedules | 3 max bytes of jobs |
--       4 how long the time of the first look is kept, ms
-- Reply {now, time of the next call ("" = unknown), {{id, first look, guard, fields and values of the record}, ...}}
--- @include "lib/attempt", "lib/clock", "lib/keys"
local now, bytes, due_now, whole = clock(ARGV[1]), 0, {}, true
local ids = redis.call('ZRANGEBYSCORE', ROOT .. ':schedules', '-inf', now, 'LIMIT', 0, ARGV[2])
local ASIDE_MS = 60000

-- Adds a schedule to the reply. Returns false if the reply is full.
local function look_at(id)
  local key = ROOT .. ':schedule:' .. id
  bytes = bytes + redis.call('HSTRLEN', key, 'job')
  if bytes > tonumber(ARGV[3]) and #due_now > 0 then return false end
  if redis.call('HEXISTS', key, 'due') == 0 then
    redis.call('ZREM', ROOT .. ':schedules', id)
    return true
  end
  local seen = tonumber(redis.call('HGET', key, 'seen'))
  if not seen or now - seen > tonumber(ARGV[4]) then
    seen = now
    redis.call('HSET', key, 'seen', now)
  end
  local guard = redis.call('HGET', ROOT .. ':b:' .. id, 'fed') or ''
  due_now[#due_now + 1] = {id, seen, guard, redis.call('HGETALL', key)}
  return true
end

for _, id in ipairs(ids) do
  local is_taken = attempt('schedule', look_at, id)
  if is_taken == false then
    whole = false
    break
  elseif is_taken == nil then
    -- A record that cannot be read does not stop the other schedules.
    redis.call('ZADD', ROOT .. ':schedules', 'XX', now + ASIDE_MS, id)
  end
end
if not whole or #ids == tonumber(ARGV[2]) then return {now, tostring(0), due_now} end
local after = redis.call('ZRANGEBYSCORE', ROOT .. ':schedules', string.format('(%.0f', now), '+inf', 'WITHSCORES',
  'LIMIT', 0, 1)
return {now, after[2] or '', due_now}
