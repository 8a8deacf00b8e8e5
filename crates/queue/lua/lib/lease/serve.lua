-- Starts jobs of the chosen tenant.
--- @include "lib/class_queues", "lib/costs", "lib/keys", "lib/lane_keys", "lib/lane_parts"
--- @include "lib/lease/key_order", "lib/lease/query", "lib/lease/take", "lib/lease/virtual_times", "lib/limits"
--- @include "lib/resume", "lib/room"

local AHEAD_MS, AHEAD_MAX, SPARE = 500, 300, 32

-- Starts at most `max` jobs from one lane of the tenant that is due: as many as it may run before the next tenant is
-- due. With `warm_lane`, it serves that lane out of turn.
local function serve(priority, class, margin, max, warm_lane)
  local class_queue = class_queue_key(priority, class)
  not_aged[priority] = nil
  local head = redis.call('ZRANGE', class_queue, 0, 1, 'WITHSCORES')
  local tenant, virtual_start, next_start, is_out_of_turn = head[1], tonumber(head[2]), tonumber(head[4]), false
  local owner = warm_lane and select(3, parts_of(warm_lane)) or tenant
  if owner ~= tenant then
    tenant, virtual_start, next_start, is_out_of_turn =
      owner, tonumber(redis.call('ZSCORE', class_queue, owner)), nil, true
  end
  local scope, lanes = 't:' .. tenant, lanes_key(priority, class, tenant)
  local allowed, due = room(scope, now)
  if allowed < 1 then
    block(scope, priority .. ':' .. class, now, due)
    drop_tenant(priority, class, tenant)
    cleared = cleared + 1
    return
  end
  -- The lane goes back below if it has jobs left.
  local lane, sequence
  if warm_lane then
    lane, sequence = warm_lane, redis.call('ZSCORE', lanes, warm_lane)
    redis.call('ZREM', lanes, warm_lane)
  else
    lane, sequence = unpack(redis.call('ZPOPMIN', lanes))
  end
  local siblings = lane and redis.call('ZCARD', lanes) or 0
  -- The lane is removed for now. A job that this call returns to it has to add it again.
  if lane then opened[lane] = nil end
  if not lane then
    drop_tenant(priority, class, tenant)
    cleared = cleared + 1
    return
  end
  local endpoint = select(4, parts_of(lane))
  local lane_scope = 'e:' .. tenant .. ':' .. endpoint
  local lane_allowed, lane_due = room(lane_scope, now)
  if lane_allowed < 1 then
    block(lane_scope, lane, now, lane_due)
    if siblings == 0 then drop_tenant(priority, class, tenant) end
    cleared = cleared + 1
    return
  end

  local charged = expected_ms(tenant, endpoint)
  tenants_on[class_queue] = tenants_on[class_queue] or redis.call('ZCARD', class_queue)
  ahead = SPARE + math.min(AHEAD_MAX, math.floor((slots or 0) * AHEAD_MS / math.max(1, charged)))
  local step, tenants = charged / limits(scope).weight, tenants_on[class_queue]
  max = math.min(max, allowed, lane_allowed, math.floor(margin / (charged / tenants)) + 1)
  if next_start then max = math.min(max, math.floor((next_start - virtual_start) / step) + 1) end
  if siblings > 0 then max = math.min(max, math.ceil(max / (siblings + 1))) end
  local paid = string.format('%.1f', charged)
  local jobs, left = take_from(requeued_key(lane), 'f', lane, tenant, max, paid)
  if not left then
    local more
    more, left = take_from(lane_key(lane), '', lane, tenant, max - jobs, paid)
    jobs = jobs + more
  end
  if jobs > 0 then
    redis.call('ZADD', class_queue, 'XX', virtual_start + jobs * step, tenant)
    local class_starts = class_starts_of[priority]
    for n = 1, #class_starts, 2 do
      if tonumber(class_starts[n]) == class then
        class_starts[n + 1] = class_starts[n + 1] + jobs * charged / tenants
        if not is_out_of_turn then
          virtual_times[priority][class_starts[n]] = virtual_start + (jobs - 1) * step
        elseif virtual_times[priority][class_starts[n]] == nil then
          virtual_times[priority][class_starts[n]] = false
        end
      end
    end
    start_at(scope, jobs, now)
    start_at(lane_scope, jobs, now)
    taken = taken + jobs
  end
  if left then
    redis.call('ZADD', lanes, siblings > 0 and redis.call('INCR', ROOT .. ':turn') or sequence, lane)
  elseif siblings == 0 then
    drop_tenant(priority, class, tenant)
  end
end

-- Returns jobs to their lanes that go before others with the same key.
local function return_earlier_jobs()
  for n = 1, #to_requeue, 2 do
    local id, lane = to_requeue[n], to_requeue[n + 1]
    if redis.call('HGET', job_key(id), 'entry') == 'k' then
      local priority, class = parts_of(lane)
      write_virtual_times(tonumber(priority))
      return_to_lane(id, lane)
      class_starts_of[tonumber(priority)], tenants_on[class_queue_key(priority, class)] = nil, nil
    end
  end
  to_requeue = {}
end
