#!lua flags=allow-oom
-- release: running -> queued, at the front, for each lease that the caller still holds. Costs the job nothing.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | then per lease: id | fence
-- Reply {"ok" | "stale_fence" | "not_found", ...} in order
local now, reply, classes = clock(ARGV[1]), {}, {}
for n = 2, #ARGV, 2 do
  local job = load(ARGV[n])
  if not job then
    reply[#reply + 1] = 'not_found'
  elseif job.state ~= 'running' or job.fence ~= ARGV[n + 1] then
    reply[#reply + 1] = 'stale_fence'
  else
    stop(job, now)
    requeue(job, now, closed_attempt(job, now, 'released', ''))
    classes[job.class] = job.lane
    reply[#reply + 1] = 'ok'
  end
end
for class, lane in pairs(classes) do wake(class, lane) end
return reply
