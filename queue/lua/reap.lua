#!lua flags=allow-oom
-- reap: running -> queued (at the front) | failed, for leases that ran out.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 most | 3 retention_ms | 4 max_infra_attempts | 5 error JSON for a job whose budget is spent
-- Reply {number moved, next_due_ms ("" = none)}
local now, moved, classes = clock(ARGV[1]), 0, {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', ROOT .. ':leases', '-inf', now, 'LIMIT', 0, ARGV[2])) do
  redis.call('ZREM', ROOT .. ':leases', id)
  local key = job_key(id)
  local job = redis.call('HMGET', key, 'state', 'fence', 'attempt', 'worker', 'leased', 'queued', 'watch', 'lane', 'lost')
  if job[1] == 'running' then
    close_attempt(id, job[3], job[4], job[2], job[5], job[6], now, 'lost', ',"error":' .. ARGV[5])
    local lost = (tonumber(job[9]) or 0) + 1
    redis.call('HSET', key, 'lost', lost, 'fence', fence_counter(job[2]) + 1)
    if lost >= tonumber(ARGV[4]) then
      redis.call('HSET', key, 'state', 'failed', 'ended', now, 'error', ARGV[5])
      bury(id, ARGV[3], now)
    else
      local entry, class = enqueue(id, job[8], true)
      redis.call('HSET', key, 'state', 'queued', 'entry', entry)
      redis.call('HDEL', key, 'worker', 'leased', 'queued', 'progress')
      classes[class] = true
    end
    notify(id, job[7], now)
    moved = moved + 1
  end
end
for class in pairs(classes) do wake(class) end
local next_due = redis.call('ZRANGE', ROOT .. ':leases', 0, 0, 'WITHSCORES')
return {moved, next_due[2] or ''}
