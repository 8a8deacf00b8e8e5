-- How a job leaves its current place.
--- @include "lib/class_queues", "lib/counts", "lib/key_queue", "lib/keys", "lib/lane_keys"
--- @include "lib/lane_parts", "lib/resume", "lib/scope_keys", "lib/stop"

-- Removes a lane that has no jobs. An empty stream is deleted, because it would keep its memory. Returns whether the
-- lane still has jobs.
local function tidy_lane(lane)
  local left = false
  for _, key in ipairs({requeued_key(lane), lane_key(lane)}) do
    if redis.call('XLEN', key) == 0 then redis.call('DEL', key) else left = true end
  end
  if left then return true end
  opened[lane] = nil
  local priority, class, tenant = parts_of(lane)
  local lanes = lanes_key(priority, class, tenant)
  redis.call('ZREM', lanes, lane)
  if redis.call('EXISTS', lanes) == 0 then deactivate_tenant(priority, class, tenant) end
  return false
end

-- Removes a job from the place that its state implies.
local function depart(job, now)
  if job.state == 'running' then
    stop(job, now)
  elseif job.state == 'scheduled' then
    redis.call('ZREM', ROOT .. ':scheduled', job.id)
  elseif job.state == 'blocked' then
    redis.call('ZREM', ROOT .. ':settle', 'ready ' .. job.id)
  elseif job.state == 'queued' then
    count(ROOT .. ':ready', job.lane, -1)
    local scope = job.ckey and key_scope(job.tenant, job.ckey)
    if scope then leave_key_queue(job.id, job.lane, scope) end
    if job.entry == 'k' then return end
    local entry = job.entry or redis.call('HGET', job_key(job.id), 'ix')
    local requeued = string.match(entry, '^f(.*)$')
    redis.call('XDEL', requeued and requeued_key(job.lane) or lane_key(job.lane), requeued or entry)
    tidy_lane(job.lane)
    -- This job may have been returned to its lane when another one stopped. The next job with the key takes its place.
    if scope then next_in_key(scope) end
  end
end
