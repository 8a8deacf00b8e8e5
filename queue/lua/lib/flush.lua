-- Runs at the end of every script.
local function flush()
  flush_charges()
  flush_costs()
  flush_counts()
  if #stopped > 0 then redis.call('ZREM', ROOT .. ':leases', unpack(stopped)) end
  if #ended > 0 then redis.call('ZADD', ROOT .. ':ended', unpack(ended)) end
  local gates = freed
  stopped, ended, freed = {}, {}, {}
  for gate in pairs(gates) do resume(gate) end
end
