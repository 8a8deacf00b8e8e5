-- How a job enters its lane.
--- @include "lib/append", "lib/class_queues", "lib/counts", "lib/flow", "lib/keys", "lib/lane_keys"

-- Appends a job to its lane, or to the lane's requeued entries. The entry gets the ID `wanted` if that is still
-- possible. Returns the entry as the record stores it: with the prefix `f` if it is requeued.
local function enqueue(raw, lane, is_requeued, wanted)
  local entry = append(is_requeued and requeued_key(lane) or lane_key(lane), raw, wanted)
  count(ROOT .. ':ready', lane, 1)
  -- A requeued job has been counted as ready before.
  if not is_requeued then grow('a:' .. lane, 1) end
  open_lane(lane)
  return (is_requeued and 'f' or '') .. entry
end
