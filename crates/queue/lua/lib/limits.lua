-- Gates: limits that jobs pass through one after the other. `t:<tenant>` and `e:<tenant>:<endpoint>` have theirs in
-- `:limits`, written "weight|max_running|max_open|starts_per_minute|max_memory_bytes" with nothing where there is no
-- limit, the last one only where it is given; `k:<tenant>:<key>` is a concurrency key, and its limit stands in the
-- job. The field `p:<gate>` beside a gate's says until when nothing starts there, since its budget is spent, and
-- `d:<gate>` beside a tenant's that it is disabled.
--- @include "lib/keys", "lib/scope_keys"

local known_limits, all_limits = {}, nil
local ALL_LIMITS_MAX = 16 -- so many are read at once
local UNLIMITED = {weight = 1}

-- What is written of a gate, until when it is paused, and whether it is disabled; false or nil where nothing is.
local function stored_limits(scope)
  if all_limits == nil then
    all_limits = redis.call('HLEN', ROOT .. ':limits') <= ALL_LIMITS_MAX and {}
    local fields = all_limits and redis.call('HGETALL', ROOT .. ':limits') or {}
    for n = 1, #fields, 2 do all_limits[fields[n]] = fields[n + 1] end
  end
  if all_limits then return all_limits[scope], all_limits[paused_field(scope)], all_limits[disabled_field(scope)] end
  return unpack(redis.call('HMGET', ROOT .. ':limits', scope, paused_field(scope), disabled_field(scope)))
end

local function limits(scope)
  if known_limits[scope] == nil then
    local stored, paused, disabled = stored_limits(scope)
    if not stored and not paused and not disabled then
      known_limits[scope] = UNLIMITED
      return UNLIMITED
    end
    local weight, running, open, rate = string.match(stored or '|||', '^([^|]*)|([^|]*)|([^|]*)|([^|]*)')
    weight = tonumber(weight) or 1
    known_limits[scope] = {
      -- Nothing may be divided by 0: the tags it gives are no numbers, and every later script of the shelf would fail
      -- on them.
      weight = weight > 0 and weight or 1, max_running = tonumber(running), max_open = tonumber(open), rate = tonumber(rate),
      max_memory = tonumber(string.match(stored or '', '^[^|]*|[^|]*|[^|]*|[^|]*|(%d+)')),
      paused = tonumber(paused), disabled = disabled,
    }
  end
  return known_limits[scope]
end
