#!lua flags=allow-oom
-- cancel: scheduled | blocked | queued | running -> cancelled. A running attempt loses its lease in the same step, so no result
-- can appear once this has answered; its worker learns at the next extend.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 retention_ms | 3 tenant | then per job: id
-- Reply {"cancelled" | "not_found" | "ended <state>", ...} in order
local now, tenant, reply = clock(ARGV[1]), ARGV[3], {}
local OPEN = {scheduled = true, blocked = true, queued = true, running = true}
for n = 4, #ARGV do
  local job = load(ARGV[n])
  if not job or job.tenant ~= tenant then
    reply[#reply + 1] = 'not_found'
  elseif not OPEN[job.state] then
    reply[#reply + 1] = 'ended ' .. job.state
  else
    depart(job, now)
    local fence = fence_counter(job.fence) + 1
    if job.state == 'running' then
      bury(job, 'cancelled', now, ARGV[2], 'fence', fence, closed_attempt(job, now, 'cancelled', ''))
    else
      bury(job, 'cancelled', now, ARGV[2], 'fence', fence)
    end
    reply[#reply + 1] = 'cancelled'
  end
end
return reply
