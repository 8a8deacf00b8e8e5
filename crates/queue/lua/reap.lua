#!lua flags=allow-oom
-- reap: running -> queued (as requeued) | failed, for leases that have expired.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 max | 3 retention_ms | 4 max_infra_attempts |
--       5 error JSON of a job whose budget is spent
-- Reply {number moved, next_due_ms ("" = none)}
--- @include "lib/clock", "lib/counts", "lib/departures", "lib/ends", "lib/fences", "lib/guard", "lib/keys"
--- @include "lib/load", "lib/requeue", "lib/stop", "lib/wake"
local now, moved, classes = clock(ARGV[1]), 0, {}
local function reap(id)
  local job = load(id)
  if job and job.state == 'running' then
    local attempt, entry = closed_attempt(job, now, 'lost', '0,0,0,0,0 {"error":' .. ARGV[5] .. '}')
    stop(job, now)
    local lost = redis.call('HINCRBY', job_key(id), 'lost', 1)
    if lost >= tonumber(ARGV[4]) then
      end_job(job, 'failed', now, ARGV[3], 'fence', fence_counter(job.fence) + 1, 'error', ARGV[5], attempt, entry)
    else
      requeue(job, now, attempt, entry)
      classes[job.class] = job.lane
    end
    moved = moved + 1
  else
    stopped[#stopped + 1] = id
  end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', ROOT .. ':leases', '-inf', now, 'LIMIT', 0, ARGV[2])) do
  guarded(id, nil, reap, id)
end
flush()
for class, lane in pairs(classes) do wake(class, lane) end
local next_due = redis.call('ZRANGE', ROOT .. ':leases', 0, 0, 'WITHSCORES')
return {moved, next_due[2] or ''}
