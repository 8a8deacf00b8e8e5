-- How a job gets into its lane.
--- @include "lib/append", "lib/class_queues", "lib/counts", "lib/flow", "lib/keys", "lib/lane_keys"

-- Puts a job at the end of its lane, or at the front; there, if it can be, as entry `wanted`. Returns where it stands.
local function enqueue(raw, lane, is_requeued, wanted)
  local entry = append(is_requeued and requeued_key(lane) or lane_key(lane), raw, wanted)
  count(ROOT .. ':ready', lane, 1)
  -- One that goes to the front has been ready before.
  if not is_requeued then grow('a:' .. lane, 1) end
  open_lane(lane)
  return (is_requeued and 'f' or '') .. entry
end
