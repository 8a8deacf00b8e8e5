-- How a running attempt stops.
--- @include "lib/charge", "lib/costs", "lib/counts", "lib/departures", "lib/freed", "lib/keys"
--- @include "lib/resume", "lib/scope_keys", "lib/text"

local KEPT_ATTEMPTS = 30 -- older entries of a job's history are deleted

-- The history entry of a running attempt: field and value for the HSET that moves the job. `tail` is `attempt_tail` of
-- record.rs, or empty. A succeeded attempt is stored with the fence `=`, since the record keeps that fence.
local function closed_attempt(job, now, outcome, tail)
  if tonumber(job.attempt) > KEPT_ATTEMPTS then
    redis.call('HDEL', job_key(job.id), 'h' .. (tonumber(job.attempt) - KEPT_ATTEMPTS))
  end
  local fence = outcome == 'succeeded' and not job.after and '=' or job.fence
  local took = text(math.max(0, now - tonumber(job.leased)))
  return 'h' .. job.attempt, table.concat({job.worker, fence, job.leased, job.queued, took, outcome, tail}, ' ')
end

-- Ends a running job's lease, frees its scopes, and corrects its tenant's charge to the actual cost.
local function stop(job, now)
  stopped[#stopped + 1] = job.id
  local ids = left_by[job.worker] or {}
  left_by[job.worker], ids[#ids + 1] = ids, job.id
  if job.batch then count(batch_key(job.batch), 'running', -1) end
  for _, scope in ipairs({'t:' .. job.tenant, 'e:' .. job.tenant .. ':' .. job.endpoint}) do
    count(ROOT .. ':running', scope, -1)
    free(scope)
  end
  if job.ckey then
    local scope = key_scope(job.tenant, job.ckey)
    count(ROOT .. ':running', scope, -1)
    next_in_key(scope)
  end
  charge(job.priority, job.class, job.tenant, taken_ms(job, now) - tonumber(job.charged))
end
