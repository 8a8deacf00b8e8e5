-- Creates a job: scheduled, blocked or queued. `new` has id, raw, tenant, endpoint, lane, spec, input, run_after_ms,
-- fields (more fields of the record: name, value, ...), depends_on (maps of job, on) and the other fields that
-- submit.lua documents. Returns the class to wake, if there is one.
--- @include "lib/announce", "lib/append", "lib/counts", "lib/enqueue", "lib/job_keys", "lib/key_queue"
--- @include "lib/keys", "lib/lane_parts", "lib/memory", "lib/recount", "lib/scope_keys", "lib/text"
--- @include "lib/watchers"

local known_tenants = {} -- tenants that this call has listed for the recovery sweep
local dues = {} -- time, ID, ... of the jobs of this call that expire if they have not started or ended by then

local function flush_dues()
  if #dues > 0 then redis.call('ZADD', ROOT .. ':deadlines', unpack(dues)) end
  dues = {}
end

at_end(false, flush_dues)

local function create(new, now)
  local key, named, names = job_key(new.id), {}, {}
  for n = 1, #new.fields, 2 do
    names[#names + 1] = new.fields[n]
    named[new.fields[n]] = new.fields[n + 1]
  end
  local waits = 0
  for _, dependency in ipairs(new.depends_on) do
    local state = redis.call('HGET', job_key(dependency.job), 'state')
    -- `settle` handles a dependency that has ended in another way than required.
    if state and state ~= 'succeeded' and state ~= 'failed' and state ~= 'cancelled' and state ~= 'expired' then
      redis.call('RPUSH', dependents_key(dependency.job), new.id .. ' ' .. dependency.on)
      redis.call('HSET', job_key(dependency.job), 'deps', 1)
      waits = waits + 1
    end
  end

  touch(new.id, nil, new.lane)
  local index = append(ROOT .. ':index:' .. new.tenant, new.raw)
  local state, field, value, class = 'queued', nil, nil, nil
  if new.blocked then
    state, field, value = 'blocked', 'waits', waits
    if new.run_after_ms > now then redis.call('HSET', key, 'run_after', text(new.run_after_ms)) end
    if waits == 0 then
      redis.call('ZADD', ROOT .. ':settle', now, 'ready ' .. new.id)
      announce('settle')
    end
  elseif new.run_after_ms > now then
    state, field, value = 'scheduled', 'run_after', text(new.run_after_ms)
    redis.call('ZADD', ROOT .. ':scheduled', new.run_after_ms, new.id)
  else
    local entry = enqueue(new.raw, new.lane, false, index)
    if entry ~= index then field, value = 'entry', entry end
    class = select(2, parts_of(new.lane))
  end
  local size, record = RECORD_BYTES + #new.spec + #new.input, {'state', state, 'lane', new.lane, 'spec', new.spec,
    'input', new.input, 'ix', index}
  local function set(name, of)
    record[#record + 1] = name
    record[#record + 1] = of
  end
  set('size', size)
  for n = 1, #new.fields do record[#record + 1] = new.fields[n] end
  if #names > 0 then set('opt', table.concat(names, ' ')) end
  if field then set(field, value) end
  if new.watcher then set('watch', watched_by('', new.watcher, new.watch_ms, now)) end
  redis.call('HSET', key, unpack(record))
  count(ROOT .. ':bytes', 't:' .. new.tenant, size)
  if state == 'queued' and named.ckey then join_key_queue(new.id, new.lane, key_scope(new.tenant, named.ckey)) end
  count(ROOT .. ':open', 't:' .. new.tenant, 1)
  count(ROOT .. ':open', 'e:' .. new.tenant .. ':' .. new.endpoint, 1)
  if not known_tenants[new.tenant] then
    known_tenants[new.tenant] = true
    redis.call('ZADD', ROOT .. ':tenants', 0, new.tenant)
  end
  local due = math.min(tonumber(named.deadline or math.huge), tonumber(named.start_by or math.huge))
  if due < math.huge then
    dues[#dues + 1] = due
    dues[#dues + 1] = new.id
  end
  if named.retry_of then redis.call('ZREM', ROOT .. ':dead:' .. new.tenant, named.retry_of) end
  return class
end
