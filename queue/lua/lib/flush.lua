-- Runs at the end of every script.
local function flush()
  flush_charges()
  flush_costs()
  flush_counts()
  flush_growth()
  flush_spent()
  flush_timings()
  flush_traces()
  if #stopped > 0 then redis.call('ZREM', ROOT .. ':leases', unpack(stopped)) end
  if #ended > 0 then redis.call('ZADD', ROOT .. ':ended', unpack(ended)) end
  local gates, held = freed, {}
  stopped, ended, freed = {}, {}, {}
  for n, gate in ipairs(gates) do held[n] = held_key(gate) end
  -- Of many gates hardly one keeps somebody waiting.
  if #held == 0 or redis.call('EXISTS', unpack(held)) == 0 then return end
  for _, gate in ipairs(gates) do resume(gate) end
end
