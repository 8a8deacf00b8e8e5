#!lua flags=allow-oom
-- cancel: scheduled | blocked | queued | running -> cancelled. A running attempt loses its lease in the same step, so
-- that no result can appear after the reply. Its worker learns of it at the next extend.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 retention_ms | 3 tenant | then per job: id
-- Reply {"cancelled" | "not_found" | "ended <state>" | "quarantined" (its record cannot be read), ...} in order
--- @include "lib/clock", "lib/depart", "lib/ends", "lib/fences", "lib/guard", "lib/keys", "lib/lane_parts"
--- @include "lib/load", "lib/stop"
local now, tenant, reply = clock(ARGV[1]), ARGV[3], {}
-- A job that never started moves to history after this time, so that its tenant gets the memory back.
local UNSTARTED_MS = 30 * 60000
local OPEN = {scheduled = true, blocked = true, queued = true, running = true}

local function cancel(id)
  local job = load(id)
  if not job then
    local kept = redis.call('HMGET', job_key(id), 'quarantined', 'lane')
    return kept[1] and select(3, parts_of(kept[2] or '')) == tenant and 'quarantined' or 'not_found'
  elseif job.tenant ~= tenant then
    return 'not_found'
  elseif not OPEN[job.state] then
    return 'ended ' .. job.state
  end
  depart(job, now)
  local fence = fence_counter(job.fence) + 1
  if job.state == 'running' then
    end_job(job, 'cancelled', now, ARGV[2], 'fence', fence, closed_attempt(job, now, 'cancelled', ''))
  else
    -- The lines of a batch have to be collected first.
    local retention_ms = job.batch and ARGV[2] or math.min(tonumber(ARGV[2]), UNSTARTED_MS)
    end_job(job, 'cancelled', now, retention_ms, 'fence', fence)
  end
  return 'cancelled'
end

for n = 4, #ARGV do
  local done, word = guarded(ARGV[n], nil, cancel, ARGV[n])
  reply[#reply + 1] = done and word or 'quarantined'
end
return reply
