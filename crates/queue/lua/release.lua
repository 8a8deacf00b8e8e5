#!lua flags=allow-oom
-- release: running -> queued (as requeued), for each lease that the caller still holds. Neither the job's budgets nor
-- its tenant are charged.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | then per lease: id | fence
-- Reply {"ok" | "stale_fence" | "not_found", ...} in order
--- @include "lib/clock", "lib/guard", "lib/load", "lib/requeue", "lib/stop", "lib/wake"
local now, reply, classes = clock(ARGV[1]), {}, {}
local function release(id, fence)
  local job = load(id)
  if not job then return 'not_found' end
  if job.state ~= 'running' or job.fence ~= fence then return 'stale_fence' end
  job.waited = now - tonumber(job.leased)
  stop(job, now)
  requeue(job, now, closed_attempt(job, now, 'released', ''))
  classes[job.class] = job.lane
  return 'ok'
end

for n = 2, #ARGV, 2 do
  local done, word = guarded(ARGV[n], nil, release, ARGV[n], ARGV[n + 1])
  -- A job that is in the quarantine now has no valid lease.
  reply[#reply + 1] = done and word or 'stale_fence'
end
for class, lane in pairs(classes) do wake(class, lane) end
return reply
