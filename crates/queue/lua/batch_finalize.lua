#!lua flags=allow-oom
-- batch_finalize: running -> finalizing, once every line has ended and every ended job is collected.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 batch
-- Reply {"ok"} | {"open"} lines are still open or not collected | {"stale"} the batch is not running
--- @include "lib/clock", "lib/keys"
local now, key = clock(ARGV[1]), batch_key(ARGV[2])
local batch = redis.call('HMGET', key, 'state', 'total', 'invalid', 'succeeded', 'failed', 'cancelled', 'expired',
  'stop', 'deadline')
if batch[1] ~= 'running' then return {'stale'} end
local ended = 0
for n = 4, 7 do ended = ended + (tonumber(batch[n]) or 0) end
if ended < batch[2] - batch[3] or redis.call('LLEN', key .. ':ended') > 0 then return {'open'} end

-- A cancel or deadline that came too late to affect any line does not decide the outcome.
local outcome, nothing = 'completed', batch[2] == batch[3]
local late = batch[8] == 'expired' or (batch[9] and tonumber(batch[9]) <= now)
if batch[8] == 'cancelled' and (nothing or tonumber(batch[6] or 0) > 0) then
  outcome = 'cancelled'
elseif late and (batch[8] and nothing or tonumber(batch[7] or 0) > 0) then
  outcome = 'expired'
end
redis.call('HSETNX', key, 'outcome', outcome)
redis.call('HSET', key, 'state', 'finalizing')
return {'ok'}
