-- Class queues: the order in which ready jobs start.
-- A class queue (priority, class) holds the active tenants, ordered by virtual start. Within it, a tenant's lanes take
-- turns. A lane is two streams: the requeued entries, which go first, and the others. The key of a class queue is
-- `:shelf:<priority>:<class>`; it keeps that spelling because replicas of the previous release use it during an
-- upgrade.
-- Tenants of a class queue share it by start-time fair queueing (Goyal, Vin, Cheng 1996). The tenant with the smallest
-- virtual start goes first, and each job advances its virtual start by the job's cost divided by the tenant's weight.
-- The cost is GPU time in milliseconds: estimated when the job starts, corrected when it stops. A tenant that becomes
-- active again starts at the queue's virtual time, so that it neither gains nor loses by its absence.
-- In `:fair`, the field `:now` is the virtual time of the class queue. Every other field is a tenant; tenant names
-- contain no colon. The classes of one priority share in the same way, each weighted by its number of active tenants.
--- @include "lib/counts", "lib/keys", "lib/lane_keys", "lib/lane_parts"

local opened = {} -- lanes known in this call to be among their tenant's lanes
local charges = {} -- charges of this call, by class queue and tenant

-- Advances a tenant's virtual start by what it was charged in this call.
local function settle_charge(priority, class, tenant)
  local account = priority .. ':' .. class .. ':' .. tenant
  local by, class_queue = charges[account], class_queue_key(priority, class)
  if not by then return end
  charges[account] = nil
  if redis.call('ZSCORE', class_queue, tenant) then
    redis.call('ZINCRBY', class_queue, by, tenant)
  else
    local left_at = redis.call('HGET', fair_key(priority, class), tenant)
    if left_at then redis.call('HSET', fair_key(priority, class), tenant, (tonumber(left_at) or 0) + by) end
  end
end

local function flush_charges()
  local accounts = {}
  for account in pairs(charges) do accounts[#accounts + 1] = account end
  for _, account in ipairs(accounts) do settle_charge(string.match(account, '^(%d+):(%d+):(.*)$')) end
end

-- Adds a tenant to a class queue, unless it is there already.
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

-- Removes a tenant from a class queue. While other tenants stay, its virtual start is kept if it is ahead of the
-- queue's virtual time.
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

-- Adds a lane to its tenant's lanes and activates the tenant.
local function open_lane(lane)
  if opened[lane] then return end
  opened[lane] = true
  local priority, class, tenant = parts_of(lane)
  redis.call('ZADD', lanes_key(priority, class, tenant), 'NX', redis.call('INCR', ROOT .. ':turn'), lane)
  activate_tenant(priority, class, tenant)
end

at_end('charges', flush_charges)
