-- How many jobs the limits of a scope let start.
--- @include "lib/counts", "lib/keys", "lib/limits", "lib/scope_keys"

-- Returns how many jobs may start now, and when to check again if only time can let the next one start.
-- The rate is GCRA (ITU-T I.371): `:rate` holds the theoretical arrival time; a burst is what one second lets through.
local function room(scope, now)
  local limit, max = limits(scope), math.huge
  if limit.disabled then return 0 end
  if limit.paused and limit.paused > now then return 0, limit.paused end
  if limit.max_running then max = limit.max_running - counted(ROOT .. ':running', scope) end
  if not limit.rate or max < 1 then return max end
  if limit.rate <= 0 then return 0 end
  local every, burst = 60000 / limit.rate, math.max(1, math.floor(limit.rate / 60))
  local arrival = math.max(now, tonumber(redis.call('HGET', ROOT .. ':rate', scope)) or 0)
  local allowed = math.floor((now + burst * every - arrival) / every + 1e-6)
  return math.min(max, allowed), math.ceil(arrival + every - burst * every)
end

local function start_at(scope, jobs, now)
  count(ROOT .. ':running', scope, jobs)
  local rate = limits(scope).rate
  if rate and rate > 0 then
    local arrival = math.max(now, tonumber(redis.call('HGET', ROOT .. ':rate', scope)) or 0)
    redis.call('HSET', ROOT .. ':rate', scope, arrival + jobs * 60000 / rate)
  end
end

-- Blocks `member` (a lane, or a tenant's class queue) until the scope has room: when a running job stops, or at `due`.
local function block(scope, member, now, due)
  redis.call('ZADD', blocked_key(scope), 'NX', now, member)
  if due then redis.call('ZADD', ROOT .. ':holds', due, scope) end
end
