-- The next entry of a class queue.
--- @include "lib/lane_keys"

-- The lane that is due.
local function next_lane(priority, class)
  local tenant = redis.call('ZRANGE', class_queue_key(priority, class), 0, 0)[1]
  return tenant and redis.call('ZRANGE', lanes_key(priority, class, tenant), 0, 0)[1]
end

-- The ID of that lane's next entry, and the job's ID in bytes; nil if there is none.
local function next_entry(priority, class)
  local lane = next_lane(priority, class)
  for _, stream in ipairs(lane and {requeued_key(lane), lane_key(lane)} or {}) do
    local entry = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    if entry then return entry[1], entry[2][2] end
  end
end
