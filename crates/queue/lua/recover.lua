#!lua flags=allow-oom
-- recover: checks the next records, tenant by tenant in the order of submit, and restores list entries that a record
-- should have but does not. The record is the truth and moves to no other state. A record that cannot be read goes to
-- the quarantine.
-- At its end, a sweep compares `:open`, `:running`, `:ready` and `:bytes` with its own counts. It corrects a counter
-- that two sweeps in a row found wrong by the same amount, because the previous release does not update the counts of a
-- sweep. A healthy queue needs no repair: every script leaves it consistent.
-- It also applies the default queue timeout: it reads every job anyway, and a list of all jobs by the time at which they
-- expire would take a third of the memory of a waiting job.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 max | 3 lease_ms | 4 retention_ms | 5 default queue timeout, ms |
--       6 tenant ("" = start a sweep) | 7 entry of its index to continue after ("" = from the first)
-- Reply {tenant to continue with ("" = the sweep is complete), entry, number checked, then per kind of repair: word,
--       number}
--- @include "lib/announce", "lib/append", "lib/attempt", "lib/class_queues", "lib/clock", "lib/counts"
--- @include "lib/guard", "lib/ids", "lib/job_keys", "lib/key_queue", "lib/keys", "lib/lane_keys"
--- @include "lib/lane_parts", "lib/raw_ids", "lib/recount", "lib/resume", "lib/room", "lib/scope_keys"
--- @include "lib/set_aside", "lib/text", "lib/wake"
local now, max, lease_ms, retention_ms = clock(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local queue_timeout_ms, tenant, entry = tonumber(ARGV[5]), ARGV[6], ARGV[7]
local FIELDS_HERE = {'state', 'lane', 'entry', 'ix', 'run_after', 'waits', 'ckey', 'deadline', 'start_by', 'ended',
  'keep', 'quarantined', 'size', 'fence'}
local repairs, kinds, classes, known_lanes = {}, {}, {}, {}

local function repaired(kind)
  if not repairs[kind] then kinds[#kinds + 1] = kind end
  repairs[kind] = (repairs[kind] or 0) + 1
end

local function is_member(key, member) return redis.call('ZSCORE', key, member) end

-- Whether a scope blocks `member`. A scope that nothing would unblock is retried now, or noted for the time that
-- unblocks it.
local function is_blocked(scope, member)
  if not is_member(blocked_key(scope), member) then return false end
  if not is_member(ROOT .. ':holds', scope) then
    local allowed, due = room(scope, now)
    if allowed >= 1 then
      resume(scope)
      repaired('gate')
    elseif due then
      redis.call('ZADD', ROOT .. ':holds', due, scope)
      repaired('gate')
    end
  end
  return true
end

-- Checks that a lane with jobs is among its tenant's lanes, the tenant in its class queue, and the class among the
-- virtual starts, unless a scope blocks the lane or the tenant.
local function check_lane(lane)
  if known_lanes[lane] then return end
  known_lanes[lane] = true
  local priority, class, owner, endpoint = parts_of(lane)
  if not is_member(lanes_key(priority, class, owner), lane) then
    if is_blocked('e:' .. owner .. ':' .. endpoint, lane) then return end
    open_lane(lane)
    repaired('lane')
    classes[class] = true
  end
  if not is_member(class_queue_key(priority, class), owner) then
    if is_blocked('t:' .. owner, priority .. ':' .. class) then return end
    activate_tenant(priority, class, owner)
    repaired('shelf')
    classes[class] = true
  end
  if not is_member(class_starts_key(priority), class) then
    redis.call('ZADD', class_starts_key(priority),
      redis.call('ZRANGE', class_starts_key(priority), 0, 0, 'WITHSCORES')[2] or 0, class)
    repaired('tag')
    classes[class] = true
  end
end

local function check_queued(id, job)
  if job.entry == 'k' then
    local scope, member = key_scope(tenant, job.ckey), id .. ' ' .. job.lane
    if is_member(waiting_key(scope), member) then return end
    join_key_queue(id, job.lane, scope)
    repaired('waiting')
    -- The job that it waited for may have stopped while this one was missing from the key queue.
    if not redis.call('HGET', ROOT .. ':running', scope) then next_in_key(scope) end
    return
  end
  -- Not counted as a repair: the previous release lists only the jobs that are set aside.
  if job.ckey then join_key_queue(id, job.lane, key_scope(tenant, job.ckey)) end
  local requeued = string.match(job.entry or '', '^f(.*)$')
  local at = requeued or job.entry or job.ix
  local found = at and redis.call('XRANGE', requeued and requeued_key(job.lane) or lane_key(job.lane), at, at)[1]
  if not found or found[2][2] ~= raw_of(id) then
    redis.call('HSET', job_key(id), 'entry', 'f' .. append(requeued_key(job.lane), raw_of(id)))
    repaired('entry')
    classes[select(2, parts_of(job.lane))] = true
  end
  check_lane(job.lane)
end

-- Whether the end of job `other` will reach the job that depends on it.
local function will_notify(other, waiting)
  if is_member(ROOT .. ':settle', 'ended ' .. other) then return true end
  if redis.call('HEXISTS', job_key(other), 'ended') == 1 then return false end
  for _, on in ipairs({'success', 'completion'}) do
    if redis.call('LPOS', dependents_key(other), waiting .. ' ' .. on, 'MAXLEN', 1000) then return true end
  end
  -- A longer list is not searched to its end, which would take too long. A list is either complete or missing.
  return redis.call('LLEN', dependents_key(other)) > 1000
end

-- If no dependency will report to the job, `settle` checks its dependencies by their records.
local function check_blocked(id, job)
  if is_member(ROOT .. ':settle', 'ready ' .. id) then return end
  if tonumber(job.waits or 0) > 0 then
    local record = redis.call('HMGET', job_key(id), 'spec', 'steps')
    for _, dependency in ipairs(cjson.decode(record[1]).depends_on or {}) do
      if will_notify(dependency.job, id) then return end
    end
    local steps = record[2] and cjson.decode(record[2]) or {}
    if #steps > 0 and will_notify(steps[#steps].job, id) then return end
  end
  redis.call('ZADD', ROOT .. ':settle', now, 'ready ' .. id)
  announce('settle')
  repaired('blocked')
end

local function check_ended(id, job)
  if not is_member(ROOT .. ':ended', id) then
    redis.call('ZADD', ROOT .. ':ended', tonumber(job.ended or now) + (tonumber(job.keep) or retention_ms), id)
    repaired('ended')
  end
  if redis.call('EXISTS', dependents_key(id)) == 1 and not is_member(ROOT .. ':settle', 'ended ' .. id) then
    redis.call('ZADD', ROOT .. ':settle', now, 'ended ' .. id)
    announce('settle')
    repaired('dependents')
  end
end

-- The default queue timeout counts from the submit, but at the earliest from the first sweep of the queue. The previous
-- release accepted jobs without this timeout, and they must not all expire with the upgrade.
local TIMEOUTS_SINCE = ROOT .. ':timeouts_since'
if tenant == '' and entry == '' then redis.call('SET', TIMEOUTS_SINCE, text(now), 'NX') end

-- Lets `expire` end a job that has never started, has neither a queue timeout of its own nor a deadline, and is older
-- than the default queue timeout.
local function check_queue_timeout(id, job)
  if job.fence or job.start_by or job.deadline then return end
  local submitted = tonumber(string.match(job.ix or '', '^%d+'))
  if not submitted or now - submitted < queue_timeout_ms then return end
  if now - tonumber(redis.call('GET', TIMEOUTS_SINCE) or now) < queue_timeout_ms then return end
  redis.call('ZADD', ROOT .. ':deadlines', now, id)
end

-- Whether this sweep counts: from its first step on, unless another sweep has interfered.
local is_counting = tenant == '' and entry == ''
if is_counting then
  redis.call('DEL', RECOUNT)
else
  local at = redis.call('HMGET', RECOUNT, ':tenant', ':at')
  is_counting = at[1] == tenant and at[2] == entry
  if not is_counting then redis.call('DEL', RECOUNT) end
end

local function check(id)
  local values, job = redis.call('HMGET', job_key(id), unpack(FIELDS_HERE)), {}
  for n, field in ipairs(FIELDS_HERE) do job[field] = values[n] or nil end
  if job.quarantined and not job.state and not is_member(QUARANTINE, id) then
    redis.call('ZADD', QUARANTINE, now, id)
    repaired('quarantine')
  end
  if is_counting and job.size then count(RECOUNT, 'bytes t:' .. tenant, tonumber(job.size) or 0) end
  if not job.state then return end
  if job.ended then return check_ended(id, job) end
  if job.state == 'queued' then
    check_queued(id, job)
  elseif job.state == 'running' and not is_member(ROOT .. ':leases', id) then
    -- Its worker can extend the lease again. Otherwise the reaper takes it back.
    redis.call('ZADD', ROOT .. ':leases', now + lease_ms, id)
    repaired('lease')
  elseif job.state == 'scheduled' and not is_member(ROOT .. ':scheduled', id) then
    redis.call('ZADD', ROOT .. ':scheduled', job.run_after or now, id)
    repaired('scheduled')
  elseif job.state == 'blocked' then
    check_blocked(id, job)
  end
  local due = math.min(tonumber(job.deadline or math.huge), tonumber(job.start_by or math.huge))
  if due < math.huge and not is_member(ROOT .. ':deadlines', id) then
    redis.call('ZADD', ROOT .. ':deadlines', due, id)
    repaired('deadline')
  end
  check_queue_timeout(id, job)
  if is_counting then recount(job.state, job.lane, job.ckey, 1) end
end

-- "<open|running|ready|bytes> <field>" -> by how much the last sweep found the counter too large.
local DRIFT = ROOT .. ':drift'
-- Of two sweeps in a row, one starts at most this long before the other ends.
local DRIFT_MS = 20 * 60000
-- Maximum number of fields of a hash. A larger one is not compared, because that would block Redis too long.
local FIELDS_MAX = 20000

local function hash_of(key)
  local fields, hash = redis.call('HGETALL', key), {}
  for n = 1, #fields, 2 do hash[fields[n]] = tonumber(fields[n + 1]) or fields[n + 1] end
  return hash
end

local function compare()
  local sums, before = hash_of(RECOUNT), hash_of(DRIFT)
  redis.call('DEL', RECOUNT, DRIFT)
  for _, what in ipairs({'open', 'running', 'ready', 'bytes'}) do
    local key = ROOT .. ':' .. what
    if redis.call('HLEN', key) > FIELDS_MAX then return end
    local counts = hash_of(key)
    for named in pairs(sums) do
      local field = string.match(named, '^' .. what .. ' (.*)$')
      if field then counts[field] = counts[field] or 0 end
    end
    for field, number in pairs(counts) do
      local name, sum = what .. ' ' .. field, sums[what .. ' ' .. field] or 0
      local drift = (tonumber(number) or 0) - sum
      if drift ~= 0 and before[name] == drift then
        if sum > 0 then redis.call('HSET', key, field, sum) else redis.call('HDEL', key, field) end
        repaired(what)
        if what == 'running' then attempt('gate', resume, field) end
      elseif drift ~= 0 then
        redis.call('HSET', DRIFT, name, drift)
      end
    end
  end
  redis.call('PEXPIRE', DRIFT, DRIFT_MS)
end

-- Maximum number of records read for `:beside`. With more, the counter stays as it is.
local BESIDE_MAX = 5000

-- Recounts `:beside` in one step, so that one sweep is enough. The previous release ends deliveries and deletes
-- schedules without subtracting their size.
local function count_beside()
  local sums, left, counts = {}, BESIDE_MAX, hash_of(ROOT .. ':beside')
  local function add(owner, size) sums[owner] = (sums[owner] or 0) + (tonumber(size or 0) or 0) end
  local pending = redis.call('ZRANGE', ROOT .. ':hooks', 0, left)
  left = left - #pending
  for _, id in ipairs(pending) do
    local delivery = redis.call('HMGET', ROOT .. ':w:' .. id, 'tenant', 'size')
    if delivery[1] then add(delivery[1], delivery[2]) end
  end
  for owner in pairs(counts) do
    local schedules = left >= 0 and redis.call('ZRANGE', ROOT .. ':schedules:' .. owner, 0, left) or {}
    left = left - #schedules
    for _, id in ipairs(schedules) do add(owner, redis.call('HGET', ROOT .. ':schedule:' .. id, 'size')) end
  end
  if left < 0 then return end
  for owner, number in pairs(counts) do
    local sum = sums[owner] or 0
    if sum ~= number then
      if sum > 0 then
        redis.call('HSET', ROOT .. ':beside', owner, sum)
      else
        redis.call('HDEL', ROOT .. ':beside', owner)
      end
      repaired('beside')
    end
  end
end

local function next_tenant(after)
  return redis.call('ZRANGE', ROOT .. ':tenants', after == '' and '-' or '(' .. after, '+', 'BYLEX',
    'LIMIT', 0, 1)[1] or ''
end

if tenant == '' then tenant = next_tenant('') end
local looked = 0
if tenant ~= '' then
  local index = ROOT .. ':index:' .. tenant
  local entries = redis.call('XRANGE', index, entry == '' and '-' or '(' .. entry, '+', 'COUNT', max)
  for _, found in ipairs(entries) do
    local id = id_of(found[2][2])
    if id then guarded(id, nil, check, id) end
    entry = found[1]
  end
  looked = #entries
  if looked < max then
    if redis.call('EXISTS', index) == 0 then redis.call('ZREM', ROOT .. ':tenants', tenant) end
    tenant, entry = next_tenant(tenant), ''
  end
end
if is_counting and tenant == '' then
  flush()
  compare()
  count_beside()
elseif is_counting then
  redis.call('HSET', RECOUNT, ':tenant', tenant, ':at', entry)
  redis.call('PEXPIRE', RECOUNT, DRIFT_MS)
end
for class in pairs(classes) do wake(class) end
local reply = {tenant, entry, tostring(looked)}
for _, kind in ipairs(kinds) do
  reply[#reply + 1] = kind
  reply[#reply + 1] = tostring(repairs[kind])
end
return reply
