-- Jobs that have left in this call. Changes to `:leases`, `:runs` and `:ended` are written once, at the end of the
-- call.
--- @include "lib/counts", "lib/keys"

local stopped = {} -- IDs of the jobs whose leases end
local left_by = {} -- worker -> IDs of the jobs that it had leased
local ended = {} -- due time, ID, ... of the jobs that ended

local function flush_departures()
  if #stopped > 0 then redis.call('ZREM', ROOT .. ':leases', unpack(stopped)) end
  for worker, ids in pairs(left_by) do redis.call('HDEL', runs_key(worker), unpack(ids)) end
  if #ended > 0 then redis.call('ZADD', ROOT .. ':ended', unpack(ended)) end
  stopped, left_by, ended = {}, {}, {}
end

at_end(false, flush_departures)
