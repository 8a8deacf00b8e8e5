-- Gates: limits that jobs pass through one after the other. `t:<tenant>` and `e:<tenant>:<endpoint>` have theirs in `:limits`,
-- written "weight|max_running|max_open|starts_per_minute|max_memory_bytes" with nothing where there is no limit, the last one only where it is
-- given; `k:<tenant>:<key>` is a
-- concurrency key, and its limit stands in the job. The field `p:<gate>` beside a gate's says until when nothing starts there, since its
-- budget is spent, and `d:<gate>` beside a tenant's that it is disabled.
local known_limits, all_limits = {}, nil
local ALL_LIMITS_MAX = 16 -- so many are read at once
local UNLIMITED = {weight = 1}

local function paused_field(gate) return 'p:' .. gate end
local function disabled_field(gate) return 'd:' .. gate end

-- What is written of a gate, until when it is paused, and whether it is disabled; false or nil where nothing is.
local function stored_limits(gate)
  if all_limits == nil then
    all_limits = redis.call('HLEN', ROOT .. ':limits') <= ALL_LIMITS_MAX and {}
    local fields = all_limits and redis.call('HGETALL', ROOT .. ':limits') or {}
    for n = 1, #fields, 2 do all_limits[fields[n]] = fields[n + 1] end
  end
  if all_limits then return all_limits[gate], all_limits[paused_field(gate)], all_limits[disabled_field(gate)] end
  return unpack(redis.call('HMGET', ROOT .. ':limits', gate, paused_field(gate), disabled_field(gate)))
end

local function limits(gate)
  if known_limits[gate] == nil then
    local stored, paused, disabled = stored_limits(gate)
    if not stored and not paused and not disabled then
      known_limits[gate] = UNLIMITED
      return UNLIMITED
    end
    local weight, running, open, rate = string.match(stored or '|||', '^([^|]*)|([^|]*)|([^|]*)|([^|]*)')
    weight = tonumber(weight) or 1
    known_limits[gate] = {
      -- Nothing may be divided by 0: the tags it gives are no numbers, and every later script of the shelf would fail on them.
      weight = weight > 0 and weight or 1, max_running = tonumber(running), max_open = tonumber(open), rate = tonumber(rate),
      max_memory = tonumber(string.match(stored or '', '^[^|]*|[^|]*|[^|]*|[^|]*|(%d+)')),
      paused = tonumber(paused), disabled = disabled,
    }
  end
  return known_limits[gate]
end

-- How many may start now, and when to look again if only time can let the next one through.
-- The rate is GCRA (ITU-T I.371): `:rate` holds the theoretical arrival time; a burst is what one second lets through.
local function room(gate, now)
  local limit, most = limits(gate), math.huge
  if limit.disabled then return 0 end
  if limit.paused and limit.paused > now then return 0, limit.paused end
  if limit.max_running then most = limit.max_running - counted(ROOT .. ':running', gate) end
  if not limit.rate or most < 1 then return most end
  if limit.rate <= 0 then return 0 end
  local every, burst = 60000 / limit.rate, math.max(1, math.floor(limit.rate / 60))
  local arrival = math.max(now, tonumber(redis.call('HGET', ROOT .. ':rate', gate)) or 0)
  local allowed = math.floor((now + burst * every - arrival) / every + 1e-6)
  return math.min(most, allowed), math.ceil(arrival + every - burst * every)
end

local function start_at(gate, jobs, now)
  count(ROOT .. ':running', gate, jobs)
  local rate = limits(gate).rate
  if rate and rate > 0 then
    local arrival = math.max(now, tonumber(redis.call('HGET', ROOT .. ':rate', gate)) or 0)
    redis.call('HSET', ROOT .. ':rate', gate, arrival + jobs * 60000 / rate)
  end
end

local function key_gate(tenant, ckey) return 'k:' .. tenant .. ':' .. string.match(ckey, '^%d+:(.*)$') end

-- How many jobs with its key may run beside one with this `ckey`.
local function key_max(ckey) return tonumber(string.match(ckey, '^%d+')) end

-- Takes `member` out of the way until the gate opens: when one that runs stops, or at `due`.
local function hold(gate, member, now, due)
  redis.call('ZADD', held_key(gate), 'NX', now, member)
  if due then redis.call('ZADD', ROOT .. ':holds', due, gate) end
end
