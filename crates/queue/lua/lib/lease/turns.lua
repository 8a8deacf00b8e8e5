-- Whose turn it is: the tags of this call, and how far they have moved on.
--- @include "lib/class_queues", "lib/lane_keys"

-- Of this call, by priority: class, tag, ... in order; what virtual time its classes' shelves have come to and is not
-- written yet (false: none, but the tag has moved); the class whose next job is known to be young. By shelf: how many
-- tenants stand there.
local tags_of, reached, young, tenants_on = {}, {{}, {}, [0] = {}}, {}, {}

-- Writes what this call has moved on, once for all that it served.
local function write_turns(priority)
  local tags = {}
  for n = 1, #(tags_of[priority] or {}), 2 do
    local class = tags_of[priority][n]
    local virtual = reached[priority][class]
    if virtual then redis.call('HSET', fair_key(priority, class), ':now', virtual) end
    if virtual ~= nil then
      tags[#tags + 1] = tags_of[priority][n + 1]
      tags[#tags + 1] = class
    end
  end
  if #tags > 0 then redis.call('ZADD', tags_key(priority), 'XX', unpack(tags)) end
  reached[priority] = {}
end

local function leave(priority, class, tenant)
  write_turns(priority)
  step_off(priority, class, tenant)
  tags_of[priority], tenants_on[class_queue_key(priority, class)] = nil, nil
end
