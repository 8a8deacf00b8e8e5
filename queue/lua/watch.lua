#!lua flags=allow-oom
-- watch: from now on `replica` is told of each change of this job, until it ends or the time is over. Moves no job.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 watch_ms | 3 id | 4 replica
-- Reply {field, value, ...} the record as it is now, empty when there is none
local now, key, kept = clock(ARGV[1]), job_key(ARGV[3]), {}
local record = redis.call('HGETALL', key)
if #record == 0 then return record end
local watch = redis.call('HGET', key, 'watch')
for replica, until_ms in string.gmatch(watch or '', '(%S+)=(%d+)') do
  if replica ~= ARGV[4] and tonumber(until_ms) > now then kept[#kept + 1] = replica .. '=' .. until_ms end
end
kept[#kept + 1] = ARGV[4] .. '=' .. (now + tonumber(ARGV[2]))
if redis.call('HEXISTS', key, 'ended') == 0 then redis.call('HSET', key, 'watch', table.concat(kept, ' ')) end
return record
