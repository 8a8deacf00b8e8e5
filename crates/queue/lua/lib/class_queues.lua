-- Where ready jobs stand. A shelf (priority, class) holds tenants by their start tag; a tenant's lanes on it take
-- turns; a lane is two streams, the front being served first.  Fair sharing between the tenants of a shelf is
-- start-time fair queueing (Goyal, Vin, Cheng 1996): a tenant is served at its start tag, and each job moves the tag
-- on by its cost over the tenant's weight. The cost is milliseconds of a card: expected when the job starts,
-- corrected when it stops. A tenant that comes back starts at the shelf's virtual time, so that it is neither owed
-- for its absence nor punished for having been alone. In `:fair`, `:now` is the shelf's virtual time and every other
-- field a tenant: no tenant's name has a colon. The classes of one priority share in the same way, each weighing as
-- much as it has tenants.
--- @include "lib/counts", "lib/keys", "lib/lane_keys", "lib/lane_parts"

local opened = {} -- lanes that stand among their tenant's, as far as this call knows
local charges = {} -- of this call, by shelf and tenant

-- Moves a tenant's tag by what it was charged in this call.
local function settle_charge(priority, class, tenant)
  local place = priority .. ':' .. class .. ':' .. tenant
  local by, class_queue = charges[place], class_queue_key(priority, class)
  if not by then return end
  charges[place] = nil
  if redis.call('ZSCORE', class_queue, tenant) then
    redis.call('ZINCRBY', class_queue, by, tenant)
  else
    local left_at = redis.call('HGET', fair_key(priority, class), tenant)
    if left_at then redis.call('HSET', fair_key(priority, class), tenant, (tonumber(left_at) or 0) + by) end
  end
end

local function flush_charges()
  local places = {}
  for place in pairs(charges) do places[#places + 1] = place end
  for _, place in ipairs(places) do settle_charge(string.match(place, '^(%d+):(%d+):(.*)$')) end
end

-- Puts a tenant on a shelf, if it is not there.
local function activate_tenant(priority, class, tenant)
  local class_queue = class_queue_key(priority, class)
  if redis.call('ZSCORE', class_queue, tenant) then return end
  settle_charge(priority, class, tenant)
  local fair = redis.call('HMGET', fair_key(priority, class), ':now', tenant)
  redis.call('ZADD', class_queue, math.max(tonumber(fair[1]) or 0, tonumber(fair[2]) or 0), tenant)
  if fair[2] then redis.call('HDEL', fair_key(priority, class), tenant) end
  if redis.call('ZCARD', class_queue) == 1 then
    local first = redis.call('ZRANGE', class_starts_key(priority), 0, 0, 'WITHSCORES')
    redis.call('ZADD', class_starts_key(priority), 'NX', first[2] or 0, class)
  end
end

-- Takes a tenant off a shelf. What it has had beyond the others is remembered while others stand there.
local function deactivate_tenant(priority, class, tenant)
  settle_charge(priority, class, tenant)
  local class_queue, fair = class_queue_key(priority, class), fair_key(priority, class)
  local virtual_start = redis.call('ZSCORE', class_queue, tenant)
  if not virtual_start then return end
  opened = {}
  redis.call('ZREM', class_queue, tenant)
  if redis.call('ZCARD', class_queue) == 0 then
    redis.call('ZREM', class_starts_key(priority), class)
    redis.call('DEL', fair)
  elseif tonumber(virtual_start) > (tonumber(redis.call('HGET', fair, ':now')) or 0) then
    redis.call('HSET', fair, tenant, virtual_start)
  end
end

-- Puts a lane back among its tenant's.
local function open_lane(lane)
  if opened[lane] then return end
  opened[lane] = true
  local priority, class, tenant = parts_of(lane)
  redis.call('ZADD', lanes_key(priority, class, tenant), 'NX', redis.call('INCR', ROOT .. ':turn'), lane)
  activate_tenant(priority, class, tenant)
end

at_end('charges', flush_charges)
