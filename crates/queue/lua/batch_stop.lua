#!lua flags=allow-oom
-- batch_stop: stops a batch: lines that are not fed yet count as cancelled or expired from now on. The caller cancels
-- the jobs that were fed. A batch that is still validating stops as soon as it runs.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 batch | 3 tenant | 4 cancelled | expired |
--       5 reason ("" = its owner requested it) | 6 "1" = running jobs may end
-- Reply {"ok"} | {"ended", state} | {"not_found"}
--- @include "lib/announce", "lib/keys"
local key = batch_key(ARGV[2])
local batch = redis.call('HMGET', key, 'state', 'tenant', 'total', 'invalid', 'fed')
if batch[2] ~= ARGV[3] then return {'not_found'} end
if batch[1] ~= 'validating' and batch[1] ~= 'running' then return {'ended', batch[1]} end

if redis.call('HSETNX', key, 'stop', ARGV[4]) == 1 and ARGV[5] ~= '' then
  redis.call('HSET', key, 'stop_reason', ARGV[5])
  if ARGV[6] ~= '' then redis.call('HSET', key, 'drains', 1) end
end
-- A cancel by the owner also ends the running jobs, even if the batch was stopped for another reason before.
if ARGV[4] == 'cancelled' and ARGV[5] == '' then redis.call('HDEL', key, 'drains') end
local stop = redis.call('HGET', key, 'stop')
if batch[1] == 'running' and redis.call('HSETNX', key, 'handed', batch[5]) == 1 then
  local accepted = batch[3] - batch[4]
  local unfed = accepted - tonumber(batch[5])
  if unfed > 0 then
    redis.call('HINCRBY', key, stop, unfed)
    -- A replica that feeds lines at this moment fails on its stale guard.
    redis.call('HSET', key, 'fed', accepted)
  end
end
announce('batches')
return {'ok'}
