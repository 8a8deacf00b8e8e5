#!lua flags=allow-oom
-- promote: scheduled -> queued, for jobs that are due. A retry goes among the requeued entries, because it has waited
-- its turn before. Then retries what is blocked by scopes that only time unblocks.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 max
-- Reply {number moved, next_due_ms ("" = none)}
--- @include "lib/attempt", "lib/clock", "lib/enqueue", "lib/guard", "lib/key_queue", "lib/keys", "lib/load"
--- @include "lib/raw_ids", "lib/resume", "lib/scope_keys", "lib/wake", "lib/watchers"
local now, moved, classes = clock(ARGV[1]), 0, {}
local function promote(id)
  redis.call('ZREM', ROOT .. ':scheduled', id)
  local job = load(id)
  if job and job.state == 'scheduled' then
    local entry = enqueue(raw_of(id), job.lane, job.attempt and true or false)
    redis.call('HSET', job_key(id), 'state', 'queued', 'entry', entry)
    if job.ckey then join_key_queue(id, job.lane, key_scope(job.tenant, job.ckey)) end
    redis.call('HDEL', job_key(id), 'run_after')
    notify_watchers(id, job.watch, now)
    classes[job.class] = job.lane
    moved = moved + 1
  end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', ROOT .. ':scheduled', '-inf', now, 'LIMIT', 0, ARGV[2])) do
  guarded(id, nil, promote, id)
end
for _, scope in ipairs(redis.call('ZRANGEBYSCORE', ROOT .. ':holds', '-inf', now, 'LIMIT', 0, ARGV[2])) do
  redis.call('ZREM', ROOT .. ':holds', scope)
  attempt('gate', resume, scope)
end
for class, lane in pairs(classes) do wake(class, lane) end
local job_due = redis.call('ZRANGE', ROOT .. ':scheduled', 0, 0, 'WITHSCORES')[2]
local scope_due = redis.call('ZRANGE', ROOT .. ':holds', 0, 0, 'WITHSCORES')[2]
if job_due and scope_due and tonumber(scope_due) < tonumber(job_due) then job_due = scope_due end
return {moved, job_due or scope_due or ''}
