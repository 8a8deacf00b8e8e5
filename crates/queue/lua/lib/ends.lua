-- How jobs leave where they stand, and how they end. Every end of a job goes through `bury`, in the script that commits it.
local KEPT_ATTEMPTS = 30 -- older entries of a job's history make room for newer ones

-- The running attempt as it goes into the job's history: field and value for the HSET that moves the job on. `tail` is
-- `attempt_tail` of record.rs, or empty. What succeeded keeps its fence, so that its attempt need not name it again.
local function closed_attempt(job, now, outcome, tail)
  if tonumber(job.attempt) > KEPT_ATTEMPTS then
    redis.call('HDEL', job_key(job.id), 'h' .. (tonumber(job.attempt) - KEPT_ATTEMPTS))
  end
  local fence = outcome == 'succeeded' and not job.after and '=' or job.fence
  local took = text(math.max(0, now - tonumber(job.leased)))
  return 'h' .. job.attempt, table.concat({job.worker, fence, job.leased, job.queued, took, outcome, tail}, ' ')
end

-- A running job gives back its lease and its slots, and pays for what it took.
local function stop(job, now)
  stopped[#stopped + 1] = job.id
  local ids = left_by[job.worker] or {}
  left_by[job.worker], ids[#ids + 1] = ids, job.id
  if job.batch then count(batch_key(job.batch), 'running', -1) end
  for _, gate in ipairs({'t:' .. job.tenant, 'e:' .. job.tenant .. ':' .. job.endpoint}) do
    count(ROOT .. ':running', gate, -1)
    free(gate)
  end
  if job.ckey then
    local gate = key_gate(job.tenant, job.ckey)
    count(ROOT .. ':running', gate, -1)
    next_in_key(gate)
  end
  charge(job.priority, job.class, job.tenant, taken_ms(job, now) - tonumber(job.charged))
end

-- Takes a job out of whatever it stands in.
local function depart(job, now)
  if job.state == 'running' then
    stop(job, now)
  elseif job.state == 'scheduled' then
    redis.call('ZREM', ROOT .. ':scheduled', job.id)
  elseif job.state == 'blocked' then
    redis.call('ZREM', ROOT .. ':settle', 'ready ' .. job.id)
  elseif job.state == 'queued' then
    count(ROOT .. ':ready', job.lane, -1)
    local gate = job.ckey and key_gate(job.tenant, job.ckey)
    if gate then leave_line(job.id, job.lane, gate) end
    if job.entry == 'k' then return end
    local entry = job.entry or redis.call('HGET', job_key(job.id), 'ix')
    local front = string.match(entry, '^f(.*)$')
    redis.call('XDEL', front and front_key(job.lane) or lane_key(job.lane), front or entry)
    tidy_lane(job.lane)
    -- It may have been let back into its lane in the place of one that stopped: the next in line takes it.
    if gate then next_in_key(gate) end
  end
end

-- Back into its lane, under a new fence. Further fields and values are set with it.
local function requeue(job, now, ...)
  local key = job_key(job.id)
  redis.call('HSET', key, 'state', 'queued', 'fence', fence_counter(job.fence) + 1, 'entry', enqueue(raw_of(job.id), job.lane, true), ...)
  if job.ckey then line_up(job.id, job.lane, key_gate(job.tenant, job.ckey)) end
  redis.call('HDEL', key, 'run', 'progress')
  notify(job.id, job.watch, now)
end

-- Ends a job that has departed. Further fields and values are set with it.
local function bury(job, state, now, retention_ms, ...)
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
  tell(job, 'job.completed', nil, now)
  trace(id, now)
  notify(id, job.watch, now)
end
