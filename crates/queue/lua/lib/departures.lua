-- Jobs that have left in this call: their leases and their entries in `:runs` and `:ended` are written once, at its
-- end.
--- @include "lib/counts", "lib/keys"

local stopped = {} -- ids that give their lease back
local left_by = {} -- worker -> ids that give the lease back that it held
local ended = {} -- due, id, ... of the jobs that ended

local function flush_departures()
  if #stopped > 0 then redis.call('ZREM', ROOT .. ':leases', unpack(stopped)) end
  for worker, ids in pairs(left_by) do redis.call('HDEL', runs_key(worker), unpack(ids)) end
  if #ended > 0 then redis.call('ZADD', ROOT .. ':ended', unpack(ended)) end
  stopped, left_by, ended = {}, {}, {}
end

at_end(false, flush_departures)
