-- Limits of scopes. A job must pass all of its scopes to start.
-- `t:<tenant>` and `e:<tenant>:<endpoint>` have their limits in `:limits`, as
-- "weight|max_running|max_open|starts_per_minute|max_memory_bytes". An empty part means no limit; the last part is
-- written only if it is set. `k:<tenant>:<key>` is a concurrency key; its limit is in the job.
-- The field `p:<scope>` says until when nothing starts because a budget is spent. The field `d:<scope>` of a tenant
-- means that the tenant is disabled.
--- @include "lib/keys", "lib/scope_keys"

local known_limits, all_limits = {}, nil
local ALL_LIMITS_MAX = 16 -- with more fields than this, scopes are read one by one
local UNLIMITED = {weight = 1}

-- The stored limits of a scope, the end of its pause, and whether it is disabled; false or nil for what is not set.
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
      -- A weight of 0 would make virtual starts infinite, and every later script on the class queue would fail.
      weight = weight > 0 and weight or 1, max_running = tonumber(running), max_open = tonumber(open),
      rate = tonumber(rate),
      max_memory = tonumber(string.match(stored or '', '^[^|]*|[^|]*|[^|]*|[^|]*|(%d+)')),
      paused = tonumber(paused), disabled = disabled,
    }
  end
  return known_limits[scope]
end
