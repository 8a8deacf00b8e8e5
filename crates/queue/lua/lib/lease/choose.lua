-- What to serve next: the priority, the class, and the lane if it is out of turn.
--- @include "lib/capability", "lib/keys", "lib/lane_keys", "lib/lane_parts", "lib/lease/query"
--- @include "lib/lease/virtual_times", "lib/next_entry"

local PASSED_MAX = 19 -- aged work gets at least every twentieth start

-- The first of these lanes that stands on its shelf, and whose model takes more. A tenant whose gate is closed does
-- not stand on its shelf, and its lanes wait.
local function loaded_lane(priority, places)
  for _, place in ipairs(places or {}) do
    local lane = priority .. ':' .. place
    local _, class, tenant = parts_of(lane)
    if takes[place] > 0 and redis.call('ZSCORE', lanes_key(priority, class, tenant), lane)
      and redis.call('ZSCORE', class_queue_key(priority, class), tenant) then
      return lane
    end
  end
end

local function is_open(priority, class)
  if reserved_class then return class == reserved_class and is_within(capability, class) end
  return is_within(capability, class) or loaded_lane(priority, warm_of[class]) ~= nil
end

-- The class within reach whose turn it is, and how far its tag lies behind the next one's. Equal tags: the largest
-- first.
local function class_of(priority)
  class_starts_of[priority] = class_starts_of[priority] or redis.call('ZRANGE', class_starts_key(priority), 0, -1, 'WITHSCORES')
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

-- Since when the job that would be served next is ready; infinity when there is none.
local function ready_since(priority, class)
  return tonumber(string.match(next_entry(priority, class) or '', '^%d+') or math.huge)
end

-- Whether that job has waited too long. One that is young stays so until somebody there is served.
local function is_aged(priority, class)
  if not_aged[priority] ~= class and now - ready_since(priority, class) < age_after then not_aged[priority] = class end
  return not_aged[priority] ~= class
end

local function place_of(lane) return string.match(lane, '^%d+:(.*)$') end

-- A lane of what the worker has loaded that may go before whoever's turn it is, or the only one there that can go;
-- nil when none may.
local function warm_lane_of(priority, class)
  if reserved_class then return nil end
  if not is_within(capability, class) then return loaded_lane(priority, warm_of[class]) end
  local open = loaded_lane(priority, warm)
  local due_lane = open and next_lane(priority, class)
  if not due_lane or (takes[place_of(due_lane)] or 0) > 0 or now - ready_since(priority, class) >= warm_preference_ms then return nil end
  return open
end

local passed = redis.call('HMGET', ROOT .. ':passed', 1, 2)
passed = {tonumber(passed[1]) or 0, tonumber(passed[2]) or 0}
local before = {passed[1], passed[2]}
local waits = {redis.call('EXISTS', class_starts_key(1)) == 1, redis.call('EXISTS', class_starts_key(2)) == 1}

-- What to serve next: priority, class, lead, most, and the lane if it is out of turn.
local function choose()
  for priority = 1, 2 do
    if passed[priority] >= PASSED_MAX then
      local class, margin = class_of(priority)
      if class and is_aged(priority, class) then
        return priority, class, margin, 1, not is_within(capability, class) and loaded_lane(priority, warm_of[class]) or nil
      end
    end
  end
  for priority = 0, 2 do
    local class, margin = class_of(priority)
    if class then
      -- Not further than the next who has been passed over too often.
      local most = want - taken
      for lower = priority + 1, 2 do
        if waits[lower] and passed[lower] < PASSED_MAX then most = math.min(most, PASSED_MAX - passed[lower]) end
      end
      local lane = warm_lane_of(priority, class)
      if lane then return priority, tonumber((select(2, parts_of(lane)))), math.huge, math.min(most, takes[place_of(lane)]), lane end
      return priority, class, margin, most
    end
  end
end
