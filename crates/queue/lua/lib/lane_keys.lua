-- Keys of lanes and class queues.
-- The spellings `:f:` (requeued entries), `:shelf:` (class queues) and `:tags:` (virtual starts of classes) stay as
-- they are: during an upgrade, replicas of the previous release use the same keys.
--- @include "lib/keys"

local function lane_key(lane) return ROOT .. ':q:' .. lane end
local function requeued_key(lane) return ROOT .. ':f:' .. lane end
local function lanes_key(priority, class, tenant)
  return ROOT .. ':lanes:' .. priority .. ':' .. class .. ':' .. tenant
end
local function class_queue_key(priority, class) return ROOT .. ':shelf:' .. priority .. ':' .. class end
local function fair_key(priority, class) return ROOT .. ':fair:' .. priority .. ':' .. class end
local function class_starts_key(priority) return ROOT .. ':tags:' .. priority end
