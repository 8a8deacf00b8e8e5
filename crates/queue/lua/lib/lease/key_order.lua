-- The order of jobs with one concurrency key.
--- @include "lib/capability", "lib/guard", "lib/key_queue", "lib/keys", "lib/lane_parts", "lib/lease/query"
--- @include "lib/room", "lib/scope_keys", "lib/text"

-- Sets a job aside until its concurrency key is free. It keeps its place in the key queue.
local function set_aside_for_key(id, lane, scope, ix)
  redis.call('ZADD', waiting_key(scope), text(arrival(ix)), id .. ' ' .. lane)
  redis.call('HSET', job_key(id), 'entry', 'k')
end

-- Whether this worker could take a job of this lane now, judged by the lane's class and endpoint.
local function serves(lane)
  local _, class, tenant, endpoint = parts_of(lane)
  class = tonumber(class)
  local fits = reserved_class and class == reserved_class
    or not reserved_class
      and (is_within(capability, class) or (warm_capacity[string.match(lane, '^%d+:(.*)$')] or 0) > 0)
  return fits and room('e:' .. tenant .. ':' .. endpoint, now) >= 1
end

-- An earlier job with the same key goes first if it is at least as urgent and this worker could take it. The later job
-- is set aside until the earlier one has started, for at most KEY_WAIT_MS. A job whose lane is blocked, or that needs
-- another worker, does not delay others.
local KEY_WAIT_MS = 2000
local to_requeue = {} -- ID, lane, ... of jobs that were set aside and go first

-- Whether the deadlines of a queued job let it start, and its entry; nil if the job is not queued.
local function may_start(id)
  local job = redis.call('HMGET', job_key(id), 'state', 'entry', 'start_by', 'deadline')
  if job[1] ~= 'queued' then return nil end
  return tonumber(job[3] or math.huge) > now and tonumber(job[4] or math.huge) > now, job[2]
end

local function is_behind(lane, scope, ix)
  local waiting, served = waiting_key(scope), {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', '(' .. text(arrival(ix)),
    'LIMIT', 0, KEY_QUEUE_MAX)) do
    local id, other = string.match(member, '^(%x+) (.*)$')
    if served[other] == nil then served[other] = string.sub(other, 1, 1) <= string.sub(lane, 1, 1) and serves(other) end
    if served[other] then
      -- An unreadable record affects its own job, not the one that would wait for it.
      local _, may, entry = guarded(id, 'queued', may_start, id)
      if may == nil then
        redis.call('ZREM', waiting, member)
      elseif may then
        if entry == 'k' then
          to_requeue[#to_requeue + 1] = id
          to_requeue[#to_requeue + 1] = other
        end
        redis.call('ZADD', ROOT .. ':holds', 'LT', now + KEY_WAIT_MS, scope)
        return true
      end
    end
  end
  return false
end
