#!lua
-- submit: nothing -> queued | scheduled | blocked, for all jobs of the call or for none.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 idempotency_ttl_ms | 3 batch ("" = none) | 4 lines fed before |
--       5 lines fed afterwards | 6 watch_ms | 7 memory limit, bytes, of a tenant without one of its own ("" = none) |
--       then per job a MessagePack map:
--       id, raw (its bytes), tenant, lane, spec, input, run_after_ms (0 = now),
--       blocked (true = settle it first), fields (name, value, ... of its record),
--       depends_on (maps of job, on: success, completion; archived = it has ended and moved to history),
--       watcher (replica that watches it; none = no replica);
--       with an idempotency key: idempotency_key, request_hash, part (index among the jobs of this key, from 0)
-- Reply {"ok", id, ...} in order, a repeat returns the first submit's id | {"conflict", number of the job, from 1} |
--       {"stale_guard"} another call has fed the batch | {"no_dependency", number of the job, id} | {"quota", scope,
--       max, open} | {"memory", tenant, max, used}
--- @include "lib/clock", "lib/counts", "lib/create", "lib/idempotency", "lib/keys", "lib/lane_parts"
--- @include "lib/limits", "lib/memory", "lib/over_memory", "lib/text", "lib/wake"
local now, batch = clock(ARGV[1]), ARGV[3]
if batch ~= '' and redis.call('HGET', batch_key(batch), 'fed') ~= ARGV[4] then return {'stale_guard'} end

local jobs = {}
for n = 8, #ARGV do
  local new = cmsgpack.unpack(ARGV[n])
  new.watch_ms, new.endpoint = ARGV[6], select(4, parts_of(new.lane))
  if new.part then new.part = new.part + 1 end
  jobs[#jobs + 1] = new
end

-- The submit stored under a job's idempotency key: its IDs by part, including those of this call.
local submits, moved = {}, {}
local function submit_under(new)
  local key = idempotency_key(new.tenant, new.idempotency_key)
  if not submits[key] then
    local stored = redis.call('GET', key) or ''
    local own = schedule_key_key(new.tenant, new.idempotency_key)
    -- A schedule with the same key, where the previous release stores it. It stays known under its own key.
    if is_of_schedule(stored) then
      if redis.call('EXISTS', own) == 0 then moved[key] = own end
      stored = ''
    end
    local request_hash, ids = string.match(stored, '^(%S+) (.*)$')
    submits[key] = {request_hash = request_hash or new.request_hash, ids = {}}
    for id in string.gmatch(ids or '', '%x+') do table.insert(submits[key].ids, id) end
  end
  return submits[key]
end

-- Checks come first, so that a rejected call changes nothing.
local known, here, wanted, scopes, owners, sizes = {}, {}, {}, {}, {}, {}
for n, new in ipairs(jobs) do
  local submit = new.idempotency_key and submit_under(new)
  if submit then
    if submit.request_hash ~= new.request_hash or new.part > #submit.ids + 1 then return {'conflict', n} end
    known[n] = submit.ids[new.part]
  end
  if not known[n] and (here[new.id] or redis.call('EXISTS', job_key(new.id)) == 1) then known[n] = new.id end
  if submit and not submit.ids[new.part] then
    submit.ids[new.part], submit.is_new = known[n] or new.id, true
  end
  if not known[n] then
    for _, dependency in ipairs(new.depends_on) do
      local lane = redis.call('HGET', job_key(dependency.job), 'lane')
      local owned = lane and select(3, parts_of(lane)) == new.tenant
      -- Within this call, only an earlier job: no job may depend on itself.
      if not owned and here[dependency.job] ~= new.tenant and dependency.on ~= 'archived' then
        return {'no_dependency', n, dependency.job}
      end
    end
    here[new.id] = new.tenant
    if not sizes[new.tenant] then owners[#owners + 1] = new.tenant end
    sizes[new.tenant] = (sizes[new.tenant] or 0) + RECORD_BYTES + #new.spec + #new.input
    for _, scope in ipairs({'t:' .. new.tenant, 'e:' .. new.tenant .. ':' .. new.endpoint}) do
      if not wanted[scope] then scopes[#scopes + 1] = scope end
      wanted[scope] = (wanted[scope] or 0) + 1
    end
  end
end
-- An accepted batch is fed regardless of the quota; its own window bounds it. A schedule also uses the guard, so that
-- deletes and pauses take effect, but the quota applies to it.
if batch == '' or string.sub(batch, 1, 4) == 'sch_' then
  for _, scope in ipairs(scopes) do
    local max, more = limits(scope).max_open, wanted[scope]
    if max then
      local open = counted(ROOT .. ':open', scope)
      if open + more > max then return {'quota', scope, max, open} end
    end
  end
end

-- The memory limit applies to batches too: their next lines wait until there is room.
for _, tenant in ipairs(owners) do
  local max, used = over_memory(tenant, sizes[tenant], ARGV[7], now)
  if max then return {'memory', tenant, text(max), text(used)} end
end

if batch ~= '' then redis.call('HSET', batch_key(batch), 'fed', ARGV[5]) end
local reply, classes = {'ok'}, {}
for n, new in ipairs(jobs) do
  if not known[n] then
    local class = create(new, now)
    if class then classes[class] = new.lane end
  end
  reply[n + 1] = known[n] or new.id
end
for key, submit in pairs(submits) do
  if submit.is_new and moved[key] then redis.call('RENAME', key, moved[key]) end
  if submit.is_new then
    redis.call('SET', key, submit.request_hash .. ' ' .. table.concat(submit.ids, ' '), 'PX', ARGV[2])
  end
end
for class, lane in pairs(classes) do wake(class, lane) end
return reply
