#!lua flags=allow-oom
-- batch_validate: updates the progress of validation, or ends it: validating -> running | finalizing. The first call
-- that ends it wins.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 batch | 3 total | 4 invalid | 5 errors JSON |
--       6 "" = in progress, "run" or "failed" | then, unless in progress: 7 input key |
--       8 key of the bitmap of invalid lines ("" = none) | 9 name of the part with their errors ("" = none) |
--       10 versions JSON
-- Reply {"ok", stop ("" = continue)} | {"stale"} the batch is not validating
--- @include "lib/announce", "lib/clock", "lib/keys", "lib/text"
local now, id, verdict = clock(ARGV[1]), ARGV[2], ARGV[6]
local key = batch_key(id)
local batch = redis.call('HMGET', key, 'state', 'total', 'stop')
if batch[1] ~= 'validating' then return {'stale'} end
-- A replica that starts again after a crash is behind at first. The numbers never decrease during validation.
if verdict ~= '' or tonumber(ARGV[3]) >= tonumber(batch[2]) then
  redis.call('HSET', key, 'total', ARGV[3], 'invalid', ARGV[4], 'errors', ARGV[5])
end
if verdict == '' then return {'ok', batch[3] or ''} end

redis.call('HSET', key, 'input', ARGV[7], 'skip', ARGV[8], 'versions', ARGV[10])
if ARGV[9] ~= '' then redis.call('RPUSH', key .. ':parts', ARGV[9]) end
if verdict == 'failed' then
  -- No line will run: the valid ones count as cancelled.
  local accepted = ARGV[3] - ARGV[4]
  redis.call('HSET', key, 'state', 'finalizing', 'outcome', 'failed', 'stop', 'cancelled', 'handed', 0, 'fed', accepted)
  if accepted > 0 then redis.call('HINCRBY', key, 'cancelled', accepted) end
else
  redis.call('HSET', key, 'state', 'running', 'started', text(now))
end
announce('batches')
return {'ok', batch[3] or ''}
