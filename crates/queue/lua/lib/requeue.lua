-- How a running job returns to its lane.
--- @include "lib/enqueue", "lib/fences", "lib/key_queue", "lib/keys", "lib/raw_ids", "lib/scope_keys"
--- @include "lib/watchers"

-- Returns a job to its lane, under a new fence. The further arguments are fields and values to set on the record.
local function requeue(job, now, ...)
  local key = job_key(job.id)
  redis.call('HSET', key, 'state', 'queued', 'fence', fence_counter(job.fence) + 1,
    'entry', enqueue(raw_of(job.id), job.lane, true), ...)
  if job.ckey then join_key_queue(job.id, job.lane, key_scope(job.tenant, job.ckey)) end
  redis.call('HDEL', key, 'run', 'progress')
  notify_watchers(job.id, job.watch, now)
end
