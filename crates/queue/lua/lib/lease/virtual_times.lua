-- Virtual starts and virtual times that this call has advanced.
--- @include "lib/class_queues", "lib/lane_keys"

-- `class_starts_of`: by priority, the list class, virtual start, ... in order. `virtual_times`: by priority and class,
-- the virtual time to write (false = only the virtual start has changed). `not_aged`: by priority, the class whose next
-- job is known to be too young to age. `tenants_on`: by class queue, the number of active tenants.
local class_starts_of, virtual_times, not_aged, tenants_on = {}, {{}, {}, [0] = {}}, {}, {}

-- Writes what this call has advanced, once for all jobs that it served.
local function write_virtual_times(priority)
  local class_starts = {}
  for n = 1, #(class_starts_of[priority] or {}), 2 do
    local class = class_starts_of[priority][n]
    local virtual_time = virtual_times[priority][class]
    if virtual_time then redis.call('HSET', fair_key(priority, class), ':now', virtual_time) end
    if virtual_time ~= nil then
      class_starts[#class_starts + 1] = class_starts_of[priority][n + 1]
      class_starts[#class_starts + 1] = class
    end
  end
  if #class_starts > 0 then redis.call('ZADD', class_starts_key(priority), 'XX', unpack(class_starts)) end
  virtual_times[priority] = {}
end

local function drop_tenant(priority, class, tenant)
  write_virtual_times(priority)
  deactivate_tenant(priority, class, tenant)
  class_starts_of[priority], tenants_on[class_queue_key(priority, class)] = nil, nil
end
