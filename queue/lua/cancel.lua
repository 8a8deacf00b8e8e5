#!lua flags=allow-oom
-- cancel: scheduled | blocked | queued | running -> cancelled. A running attempt loses its lease in the same step, so no result
-- can appear once this has answered; its worker learns at the next extend.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 retention_ms | 3 id | 4 tenant
-- Reply {"cancelled"} | {"already_ended", state} | {"not_found"}
local now, id = clock(ARGV[1]), ARGV[3]
local key = job_key(id)
local job = redis.call('HMGET', key, 'state', 'fence', 'attempt', 'worker', 'leased', 'queued', 'watch', 'lane', 'entry')
local state = job[1]
local owner = job[8] and string.match(job[8], '^%d+:%d+:([^:]*):')
if not state or owner ~= ARGV[4] then return {'not_found'} end

if state == 'running' then
  close_attempt(id, job[3], job[4], job[2], job[5], job[6], now, 'cancelled', '')
  redis.call('ZREM', ROOT .. ':leases', id)
elseif state == 'queued' then
  local front = string.match(job[9], '^f(.*)$')
  redis.call('XDEL', front and front_key(job[8]) or lane_key(job[8]), front or job[9])
  tidy_lane(job[8])
elseif state == 'scheduled' then
  redis.call('ZREM', ROOT .. ':scheduled', id)
elseif state ~= 'blocked' then
  return {'already_ended', state}
end
redis.call('HSET', key, 'state', 'cancelled', 'ended', now, 'fence', fence_counter(job[2]) + 1)
bury(id, ARGV[2], now)
notify(id, job[7], now)
return {'cancelled'}
