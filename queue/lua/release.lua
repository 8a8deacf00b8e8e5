#!lua flags=allow-oom
-- release: running -> queued, at the front, for each lease that the caller still holds. Costs the job nothing.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | then per lease: id | fence
-- Reply {"ok" | "stale_fence" | "not_found", ...} in order
local now, reply, classes = clock(ARGV[1]), {}, {}
for n = 2, #ARGV, 2 do
  local id, fence = ARGV[n], ARGV[n + 1]
  local key = job_key(id)
  local job = redis.call('HMGET', key, 'state', 'fence', 'attempt', 'worker', 'leased', 'queued', 'watch', 'lane')
  if not job[1] then
    reply[#reply + 1] = 'not_found'
  elseif job[1] ~= 'running' or job[2] ~= fence then
    reply[#reply + 1] = 'stale_fence'
  else
    close_attempt(id, job[3], job[4], fence, job[5], job[6], now, 'released', '')
    redis.call('ZREM', ROOT .. ':leases', id)
    local entry, class = enqueue(id, job[8], true)
    redis.call('HSET', key, 'state', 'queued', 'fence', fence_counter(fence) + 1, 'entry', entry)
    redis.call('HDEL', key, 'worker', 'leased', 'queued', 'progress')
    notify(id, job[7], now)
    classes[class] = true
    reply[#reply + 1] = 'ok'
  end
end
for class in pairs(classes) do wake(class) end
return reply
