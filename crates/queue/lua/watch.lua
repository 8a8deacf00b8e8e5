#!lua flags=allow-oom
-- watch: notifies `replica` of each change of a job, until the job ends or the time is over. Moves no job.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 watch_ms | 3 id | 4 replica
-- Reply {field, value, ...} the record as it is now, empty if there is none
--- @include "lib/clock", "lib/keys", "lib/watchers"
local now, watch_ms, key, replica = clock(ARGV[1]), tonumber(ARGV[2]), job_key(ARGV[3]), ARGV[4]
local record, watch = redis.call('HGETALL', key), ''
for n = 1, #record, 2 do
  if record[n] == 'ended' then return record end
  if record[n] == 'watch' then watch = record[n + 1] end
end
if #record == 0 then return record end
-- Waiting clients call this at each change, so the entry is renewed only after half of its time.
for other, until_ms in string.gmatch(watch, '(%S+)=(%d+)') do
  if other == replica and tonumber(until_ms) - now > watch_ms / 2 then return record end
end
redis.call('HSET', key, 'watch', watched_by(watch, replica, watch_ms, now))
return record
