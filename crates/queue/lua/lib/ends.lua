-- How jobs end.
--- @include "lib/announce", "lib/counts", "lib/departures", "lib/flow", "lib/keys", "lib/text"
--- @include "lib/traces", "lib/watchers", "lib/webhooks"

-- Ends a job that has left its place. The further arguments are fields and values to set on the record. The record's
-- field `keep` overrides `retention_ms`.
local function end_job(job, state, now, retention_ms, ...)
  local key, id = job_key(job.id), job.id
  redis.call('HSET', key, 'state', state, 'ended', text(now), ...)
  if job.state == 'running' then
    redis.call('HDEL', key, 'run', 'progress', 'watch', 'line')
  else
    redis.call('HDEL', key, 'entry', 'run_after', 'waits', 'watch', 'line')
  end
  if job.deadline or job.start_by then redis.call('ZREM', ROOT .. ':deadlines', id) end
  ended[#ended + 1] = now + (job.keep or retention_ms)
  ended[#ended + 1] = id
  count(ROOT .. ':open', 't:' .. job.tenant, -1)
  count(ROOT .. ':open', 'e:' .. job.tenant .. ':' .. job.endpoint, -1)
  grow('e:' .. job.tenant .. ':' .. job.endpoint, 1)
  if state == 'failed' or state == 'expired' then
    grow('x:' .. job.tenant .. ':' .. job.endpoint, 1)
    redis.call('ZADD', ROOT .. ':dead:' .. job.tenant, now, id)
  end
  if job.batch then
    count(batch_key(job.batch), state, 1)
    redis.call('RPUSH', batch_key(job.batch) .. ':ended', id)
    announce('batches')
  end
  if job.deps then
    redis.call('ZADD', ROOT .. ':settle', now, 'ended ' .. id)
    announce('settle')
  end
  notify_webhook(job, 'job.completed', nil, now)
  trace(id, now)
  notify_watchers(id, job.watch, now)
end
