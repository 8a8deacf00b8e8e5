#!lua flags=allow-oom
-- expire: scheduled | blocked | queued | running -> expired, for jobs that are past their deadline, or have not started
-- by their `start_by` or within the default queue timeout.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 max | 3 retention_ms | 4 error JSON: not started in time |
--       5 error JSON: not ended in time
-- Reply {number moved, next_due_ms ("" = none)}
--- @include "lib/clock", "lib/depart", "lib/ends", "lib/fences", "lib/guard", "lib/keys", "lib/load"
--- @include "lib/stop"
local now, moved = clock(ARGV[1]), 0
local function expire(id)
  redis.call('ZREM', ROOT .. ':deadlines', id)
  local job = load(id)
  -- A job that `recover` listed because it had not started in time may have started since.
  local has_started = job and job.fence and not job.start_by and not job.deadline
  if job and not has_started and not redis.call('HGET', job_key(id), 'ended') then
    local in_time = not job.deadline or tonumber(job.deadline) > now
    depart(job, now)
    local fence, why = fence_counter(job.fence) + 1, in_time and ARGV[4] or ARGV[5]
    if job.state == 'running' then
      end_job(job, 'expired', now, ARGV[3], 'fence', fence, 'error', why, closed_attempt(job, now, 'expired', ''))
    else
      end_job(job, 'expired', now, ARGV[3], 'fence', fence, 'error', why)
    end
    moved = moved + 1
  end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', ROOT .. ':deadlines', '-inf', now, 'LIMIT', 0, ARGV[2])) do
  guarded(id, nil, expire, id)
end
local next_due = redis.call('ZRANGE', ROOT .. ':deadlines', 0, 0, 'WITHSCORES')
return {moved, next_due[2] or ''}
