#!lua flags=allow-oom
-- promote: scheduled -> queued, for jobs whose time has come. A retry goes to the front: it has waited its turn before.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 most
-- Reply {number moved, next_due_ms ("" = none)}
local now, moved, classes = clock(ARGV[1]), 0, {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', ROOT .. ':scheduled', '-inf', now, 'LIMIT', 0, ARGV[2])) do
  redis.call('ZREM', ROOT .. ':scheduled', id)
  local job = redis.call('HMGET', job_key(id), 'state', 'lane', 'attempt', 'watch')
  if job[1] == 'scheduled' then
    local entry, class = enqueue(id, job[2], job[3] and true or false)
    redis.call('HSET', job_key(id), 'state', 'queued', 'entry', entry)
    redis.call('HDEL', job_key(id), 'run_after')
    notify(id, job[4], now)
    classes[class] = true
    moved = moved + 1
  end
end
for class in pairs(classes) do wake(class) end
local next_due = redis.call('ZRANGE', ROOT .. ':scheduled', 0, 0, 'WITHSCORES')
return {moved, next_due[2] or ''}
