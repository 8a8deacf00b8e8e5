-- How blocked jobs, lanes and tenants continue. At the end of a call, this file retries what the freed scopes blocked.
--- @include "lib/attempt", "lib/class_queues", "lib/counts", "lib/enqueue", "lib/freed", "lib/guard"
--- @include "lib/key_queue", "lib/keys", "lib/lane_keys", "lib/lane_parts", "lib/raw_ids", "lib/scope_keys"
--- @include "lib/wake"

-- Returns a job that was set aside to its lane, among the requeued entries.
local function return_to_lane(id, lane)
  count(ROOT .. ':ready', lane, -1)
  redis.call('HSET', job_key(id), 'entry', enqueue(raw_of(id), lane, true))
end

-- Returns jobs with a concurrency key to their lanes: in each lane as many as may run, in the order of submit. Lanes
-- are handled separately, because one of them may be blocked or without a worker for any time. `lease` keeps the order
-- between lanes (lib/lease/key_order).
local function next_in_key(scope)
  local members = redis.call('ZRANGE', waiting_key(scope), 0, KEY_QUEUE_MAX - 1)
  if #members == 0 then redis.call('ZREM', ROOT .. ':holds', scope) end
  local running, in_lane, full = counted(ROOT .. ':running', scope), {}, {}
  local function look_at(member, id, lane)
    local job = redis.call('HMGET', job_key(id), 'state', 'entry', 'ckey')
    local before = in_lane[lane] or 0
    if job[1] ~= 'queued' then
      redis.call('ZREM', waiting_key(scope), member)
    elseif job[2] ~= 'k' then
      in_lane[lane] = before + 1
    elseif running + before < key_max(job[3]) then
      in_lane[lane] = before + 1
      return_to_lane(id, lane)
      wake(select(2, parts_of(lane)), lane)
    else
      full[lane] = true
    end
  end
  for _, member in ipairs(members) do
    local id, lane = string.match(member, '^(%x+) (.*)$')
    if not full[lane] then guarded(id, nil, look_at, member, id, lane) end
  end
end

-- Retries what a scope blocks.
local function resume(scope)
  if string.sub(scope, 1, 2) == 'k:' then return next_in_key(scope) end
  local blocked = blocked_key(scope)
  local members = redis.call('ZRANGE', blocked, 0, 99)
  if #members == 0 then return end
  redis.call('ZREM', blocked, unpack(members))
  redis.call('ZREM', ROOT .. ':holds', scope)
  local tenant = string.match(scope, '^t:(.*)$')
  for _, member in ipairs(members) do
    if tenant then
      local priority, class = string.match(member, '^(%d+):(%d+)$')
      if redis.call('EXISTS', lanes_key(priority, class, tenant)) == 1 then
        activate_tenant(priority, class, tenant)
        wake(class)
      end
    elseif redis.call('EXISTS', lane_key(member), requeued_key(member)) > 0 then
      open_lane(member)
      wake(select(2, parts_of(member)), member)
    end
  end
end

local function resume_freed()
  local scopes, blocked = freed, {}
  freed = {}
  for n, scope in ipairs(scopes) do blocked[n] = blocked_key(scope) end
  -- Most scopes block nothing.
  if #blocked == 0 or redis.call('EXISTS', unpack(blocked)) == 0 then return end
  for _, scope in ipairs(scopes) do attempt('gate', resume, scope) end
end

at_end(false, resume_freed)
