-- Wakes parked pulls.
--- @include "lib/keys", "lib/lane_parts", "lib/waiter_keys"

local function wake_waiter(listed)
  local replica, waiter, met = string.match(listed, '^(.*)/(%d+)/([%d.]+)$')
  for each in string.gmatch(met, '%d+') do redis.call('ZREM', parked_key(each), listed) end
  return redis.call('PUBLISH', ROOT .. ':signal:' .. replica, 'wake ' .. waiter) > 0
end

local WARM_LOOKS = 8
local UNMET_MS = 500 -- the autoscaler is notified at most this often

-- Notifies the autoscaler that a class has ready jobs and no parked pull can take them.
local function report_unmet()
  if redis.call('SET', ROOT .. ':unmet', '1', 'NX', 'PX', UNMET_MS) then
    redis.call('PUBLISH', ROOT .. ':signal:autoscaler', 'unmet')
  end
  return false
end

-- Wakes one parked pull that can take a job of this class, from this lane if given. The order of preference: the model
-- is loaded, the smallest GPU that fits, the cheapest, the least busy. Pulls of a replica that is gone are removed.
-- Returns whether a pull was woken.
local function wake(class, lane)
  local requirement_set, gib = parts_of_class(class)
  if lane then
    local warm = warm_key(string.match(lane, '^%d+:(.*)$'))
    for _, waiter in ipairs(redis.call('ZRANGE', warm, 0, WARM_LOOKS - 1)) do
      -- A loaded model takes the job even if the worker has no room otherwise.
      if redis.call('ZSCORE', parked_key(requirement_set), waiter) and wake_waiter(waiter) then return true end
      -- The pull is no longer parked, or its replica is gone.
      redis.call('ZREM', warm, waiter)
    end
  end
  for _ = 1, 100 do
    local found = redis.call('ZRANGEBYSCORE', parked_key(requirement_set), gib, '+inf', 'LIMIT', 0, 1)
    if #found == 0 then return report_unmet() end
    if wake_waiter(found[1]) then return true end
  end
  return false
end
