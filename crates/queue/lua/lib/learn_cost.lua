-- The expected cost of an endpoint's runs.
--- @include "lib/costs", "lib/counts", "lib/keys"

local SMOOTHING = 0.2 -- weight of the newest run
local runs = {} -- runs of this call: field of `:cost`, ms, ...

-- Notes what a run cost, for the estimate of the next one.
local function learn_cost(job, now)
  runs[#runs + 1] = job.tenant .. ':' .. job.endpoint
  runs[#runs + 1] = taken_ms(job, now)
end

local function flush_costs()
  if #runs == 0 then return end
  local fields, costs, set = {}, {}, {}
  for n = 1, #runs, 2 do
    if costs[runs[n]] == nil then
      costs[runs[n]] = false
      fields[#fields + 1] = runs[n]
    end
  end
  for n, before in ipairs(redis.call('HMGET', ROOT .. ':cost', unpack(fields))) do
    costs[fields[n]] = tonumber(before)
  end
  for n = 1, #runs, 2 do
    local before, took = costs[runs[n]] or runs[n + 1], runs[n + 1]
    costs[runs[n]] = math.max(before + (took - before) * SMOOTHING, 0.1)
  end
  for n, field in ipairs(fields) do
    set[2 * n - 1] = field
    set[2 * n] = string.format('%.1f', costs[field])
  end
  redis.call('HSET', ROOT .. ':cost', unpack(set))
  runs = {}
end

at_end('costs', flush_costs)
