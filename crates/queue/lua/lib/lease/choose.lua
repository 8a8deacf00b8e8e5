-- What to serve next: the priority, the class, and the lane if it goes out of turn.
--- @include "lib/capability", "lib/keys", "lib/lane_keys", "lib/lane_parts", "lib/lease/query"
--- @include "lib/lease/virtual_times", "lib/next_entry"

local PASSED_MAX = 19 -- aged work gets at least every twentieth start

-- The first of these lanes that is active and whose loaded model takes more jobs. The lanes of a blocked tenant are not
-- active.
local function loaded_lane(priority, suffixes)
  for _, suffix in ipairs(suffixes or {}) do
    local lane = priority .. ':' .. suffix
    local _, class, tenant = parts_of(lane)
    if warm_capacity[suffix] > 0 and redis.call('ZSCORE', lanes_key(priority, class, tenant), lane)
      and redis.call('ZSCORE', class_queue_key(priority, class), tenant) then
      return lane
    end
  end
end

local function is_open(priority, class)
  if reserved_class then return class == reserved_class and is_within(capability, class) end
  return is_within(capability, class) or loaded_lane(priority, warm_of[class]) ~= nil
end

-- Of the classes that this call may serve, the one with the smallest virtual start, and its margin to the next one. The
-- largest class wins a tie.
local function class_of(priority)
  class_starts_of[priority] = class_starts_of[priority]
    or redis.call('ZRANGE', class_starts_key(priority), 0, -1, 'WITHSCORES')
  local class_starts, best, virtual_start, next_start = class_starts_of[priority], nil, nil, math.huge
  for n = 1, #class_starts, 2 do
    local class, start = tonumber(class_starts[n]), tonumber(class_starts[n + 1])
    if is_open(priority, class) then
      if not best or start < virtual_start or (start == virtual_start and class > best) then
        next_start = virtual_start or next_start
        best, virtual_start = class, start
      else
        next_start = math.min(next_start, start)
      end
    end
  end
  return best, next_start - (virtual_start or 0)
end

-- The time since when the next job of a class queue is ready; infinity if there is none.
local function ready_since(priority, class)
  return tonumber(string.match(next_entry(priority, class) or '', '^%d+') or math.huge)
end

-- Whether that job has waited for `age_after`. Once found too young, the class is not checked again until one of its
-- jobs is served.
local function is_aged(priority, class)
  if not_aged[priority] ~= class and now - ready_since(priority, class) < age_after then not_aged[priority] = class end
  return not_aged[priority] ~= class
end

local function lane_suffix(lane) return string.match(lane, '^%d+:(.*)$') end

-- A lane of the worker's loaded models that may go first, or the only one that can; nil if there is none. A lane goes
-- first if the due lane is not warm on this worker and its next job has waited for less than `warm_preference_ms`.
local function warm_lane_of(priority, class)
  if reserved_class then return nil end
  if not is_within(capability, class) then return loaded_lane(priority, warm_of[class]) end
  local open = loaded_lane(priority, warm)
  local due_lane = open and next_lane(priority, class)
  if not due_lane or (warm_capacity[lane_suffix(due_lane)] or 0) > 0
    or now - ready_since(priority, class) >= warm_preference_ms then
    return nil
  end
  return open
end

local passed = redis.call('HMGET', ROOT .. ':passed', 1, 2)
passed = {tonumber(passed[1]) or 0, tonumber(passed[2]) or 0}
local before = {passed[1], passed[2]}
local has_jobs = {redis.call('EXISTS', class_starts_key(1)) == 1, redis.call('EXISTS', class_starts_key(2)) == 1}

-- What to serve next: priority, class, margin, the maximum number of jobs, and the lane if it goes out of turn.
local function choose()
  for priority = 1, 2 do
    if passed[priority] >= PASSED_MAX then
      local class, margin = class_of(priority)
      if class and is_aged(priority, class) then
        return priority, class, margin, 1,
          not is_within(capability, class) and loaded_lane(priority, warm_of[class]) or nil
      end
    end
  end
  for priority = 0, 2 do
    local class, margin = class_of(priority)
    if class then
      -- Stops where a lower priority is due for one start.
      local max = want - taken
      for lower = priority + 1, 2 do
        if has_jobs[lower] and passed[lower] < PASSED_MAX then max = math.min(max, PASSED_MAX - passed[lower]) end
      end
      local lane = warm_lane_of(priority, class)
      if lane then
        return priority, tonumber((select(2, parts_of(lane)))), math.huge,
          math.min(max, warm_capacity[lane_suffix(lane)]), lane
      end
      return priority, class, margin, max
    end
  end
end
