-- Runs at the end of every script, also of one that raised: what was counted is written whatever else fails.
local function flush()
  attempt('count again', flush_touched)
  attempt('counts', flush_counts)
  if #stopped > 0 then redis.call('ZREM', ROOT .. ':leases', unpack(stopped)) end
  for worker, ids in pairs(left_by) do redis.call('HDEL', runs_key(worker), unpack(ids)) end
  if #ended > 0 then redis.call('ZADD', ROOT .. ':ended', unpack(ended)) end
  attempt('charges', flush_charges)
  attempt('costs', flush_costs)
  attempt('flow', flush_growth)
  attempt('spent', flush_spent)
  attempt('timings', flush_timings)
  attempt('traces', flush_traces)
  local gates, held = freed, {}
  stopped, left_by, ended, freed = {}, {}, {}, {}
  for n, gate in ipairs(gates) do held[n] = held_key(gate) end
  -- Of many gates hardly one keeps somebody waiting.
  if #held == 0 or redis.call('EXISTS', unpack(held)) == 0 then return end
  for _, gate in ipairs(gates) do attempt('gate', resume, gate) end
  if #journal > 0 then attempt('counts', flush_counts) end
end
