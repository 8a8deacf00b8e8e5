#!lua flags=allow-oom
-- abandon: ends the leases of a worker that has terminated, so that the next `reap` takes them back first. Moves no
-- job.
-- KEYS  1 root
-- ARGV  1 worker_id | then per job that may be leased: id
-- Reply number of leases ended
--- @include "lib/keys"
local ended = 0
for n = 2, #ARGV do
  local job = redis.call('HMGET', job_key(ARGV[n]), 'state', 'run')
  if job[1] == 'running' and job[2] and string.match(job[2], '^%S+') == ARGV[1] then
    redis.call('ZADD', ROOT .. ':leases', 'XX', 0, ARGV[n])
    ended = ended + 1
  end
end
return ended
