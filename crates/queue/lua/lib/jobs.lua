-- Jobs one at a time: reading a record, keeping what one does from the others, and counting them anew.
local OPEN_STATES = {scheduled = true, blocked = true, queued = true, running = true}
local ENDED_STATES = {succeeded = true, failed = true, cancelled = true, expired = true}

-- The sweep that counts all open jobs anew (recover.lua) keeps in `:recount` how far it has come (`:tenant`, and `:at`, an entry of that
-- tenant's index) and how many jobs it has seen there, by "<open|running|ready> <gate or lane>". A script that moves a job which
-- the sweep has seen counts there what has changed, so that the sum is right at every moment.
local RECOUNT = ROOT .. ':recount'
local recount_tenant, recount_at -- asked once a call; false where no sweep is under way
local touched = {} -- id -> what the job was before this call, while a sweep is under way

local function is_recounting()
  if recount_tenant == nil then recount_tenant, recount_at = unpack(redis.call('HMGET', RECOUNT, ':tenant', ':at')) end
  return recount_tenant
end

-- What a record takes beside its spec, its input and a result: about what Redis needs for the hash, its places and its idempotency key.
local RECORD_BYTES = 2048

-- The bytes that a record was counted with (`size`). One of the release before was not.
local function size_of(id) return tonumber(redis.call('HGET', job_key(id), 'size') or 0) or 0 end

-- A record takes so many bytes of its tenant's memory more, or less.
local function take_memory(id, tenant, by)
  if by == 0 then return end
  redis.call('HINCRBY', job_key(id), 'size', by)
  count(ROOT .. ':bytes', 't:' .. tenant, by)
end

-- What a tenant's schedules and the webhook messages that it has not got yet take: so many bytes more, or less.
local function take_beside(tenant, by) count(ROOT .. ':beside', tenant, by) end

local STREAMED_MS = 3600000 -- as long as outputs live after the last

local function streamed_key(now, before) return ROOT .. ':streamed:' .. (math.floor(now / STREAMED_MS) - before) end

-- Outputs of a tenant's jobs take so many bytes more. They go by themselves, and what was counted of them with its hour.
local function take_streamed(tenant, by, now)
  local key = streamed_key(now, 0)
  if by <= 0 then return end
  if redis.call('HINCRBY', key, tenant, by) == by then redis.call('PEXPIRE', key, 2 * STREAMED_MS) end
end

-- Whether so many bytes more are more than a tenant may have: then what it may have and what it has. `share` is of those that have no limit of
-- their own, "" where there is room for all.
local function over_memory(tenant, more, share, now)
  local most = limits('t:' .. tenant).max_memory or tonumber(share)
  if not most then return nil end
  local held = counted(ROOT .. ':bytes', 't:' .. tenant) + counted(ROOT .. ':beside', tenant)
  for before = 0, 1 do held = held + (tonumber(redis.call('HGET', streamed_key(now, before), tenant)) or 0) end
  if held + more > most then return most, held end
end

-- Before a job moves. One that is new has no state yet.
local function touch(id, state, lane, ckey)
  if not is_recounting() or touched[id] then return end
  touched[id] = {state = state, lane = lane, ckey = ckey, size = size_of(id)}
end

-- As ZRANGE BYLEX orders them: Lua's own order of texts depends on the locale.
local function is_before(one, other)
  for n = 1, math.min(#one, #other) do
    local a, b = string.byte(one, n), string.byte(other, n)
    if a ~= b then return a < b end
  end
  return #one < #other
end

local function is_recounted(tenant, ix)
  if tenant ~= recount_tenant then return is_before(tenant, recount_tenant) end
  local ms, seq = string.match(ix, '^(%d+)%-(%d+)$')
  local at_ms, at_seq = string.match(recount_at, '^(%d+)%-(%d+)$')
  if not ms or not at_ms then return false end
  if ms ~= at_ms then return tonumber(ms) < tonumber(at_ms) end
  return tonumber(seq) <= tonumber(at_seq)
end

-- Counts a job, as it is, in the sum of the sweep.
local function recount(state, lane, ckey, by)
  if not OPEN_STATES[state] then return end
  local _, _, tenant, endpoint = parts_of(lane)
  local gates = {'t:' .. tenant, 'e:' .. tenant .. ':' .. endpoint}
  for _, gate in ipairs(gates) do count(RECOUNT, 'open ' .. gate, by) end
  if state == 'running' then
    if ckey then gates[3] = key_gate(tenant, ckey) end
    for _, gate in ipairs(gates) do count(RECOUNT, 'running ' .. gate, by) end
  elseif state == 'queued' then
    count(RECOUNT, 'ready ' .. lane, by)
  end
end

local function flush_touched()
  for id, before in pairs(touched) do
    local after, tenant = redis.call('HMGET', job_key(id), 'ix', 'state', 'lane', 'ckey', 'size'), select(3, parts_of(before.lane))
    if after[1] and is_recounted(tenant, after[1]) then
      count(RECOUNT, 'bytes t:' .. tenant, (tonumber(after[5]) or 0) - before.size)
      recount(before.state, before.lane, before.ckey, -1)
      recount(after[2], after[3], after[4], 1)
    end
  end
  touched = {}
end

-- A record is deleted. `ix` is its entry in the tenant's index, as far as it has one.
local function give_back_memory(tenant, ix, size)
  local bytes = tonumber(size or 0) or 0
  if bytes == 0 then return end
  count(ROOT .. ':bytes', 't:' .. tenant, -bytes)
  if ix and is_recounting() and is_recounted(tenant, ix) then count(RECOUNT, 'bytes t:' .. tenant, -bytes) end
end

local loaded -- the job that was loaded last

-- What the scripts rely on. What does not hold is said before anything is changed.
local function check_record(job)
  local function must(holds, field) if not holds then error('the field "' .. field .. '" cannot be read', 0) end end
  must(OPEN_STATES[job.state] or ENDED_STATES[job.state], 'state')
  must(job.endpoint, 'lane')
  must(not job.fence or tonumber(string.match(job.fence, '^%d+')), 'fence')
  if job.state == 'running' then
    must(tonumber(job.attempt), 'attempt')
    must(tonumber(job.leased) and tonumber(job.queued) and tonumber(job.charged), 'run')
  end
  must(not job.ckey or string.match(job.ckey, '^%d+:'), 'ckey')
  must(not job.hook or string.match(job.hook, '^%S* '), 'hook')
  must(not job.deadline or tonumber(job.deadline), 'deadline')
  must(not job.start_by or tonumber(job.start_by), 'start_by')
  must(not job.keep or tonumber(job.keep), 'keep')
end

-- One job's record, as far as the scripts decide by it; nil when there is none. The rest of it is for people.
-- `ix` is its entry in the tenant's index. `entry` says where it stands while it is queued: an entry of its lane, after an `f` of
-- the front, or `k` with those that wait for its key; without `entry` the lane's entry is that of the index.
-- `run` is "<worker> <leased> <queued> <charged>" while it runs; a release adds a word only once the one before it reads more. `opt` names the fields that only some
-- jobs have: deadline, start_by, keep, ckey, hook, batch, retry_of, after. Looking for a field that is not there is what costs most.
local function load(id)
  local key = job_key(id)
  local core = redis.call('HMGET', key, 'state', 'lane', 'fence', 'attempt', 'run', 'entry', 'watch', 'opt', 'deps')
  -- Without a lane it is what a power cut has left of a record (record.rs): nothing that could be moved. Without a state it may be in the
  -- quarantine.
  if not core[1] or not core[2] then return nil end
  local job = {
    id = id, state = core[1], lane = core[2], fence = core[3] or nil, attempt = core[4] or nil, entry = core[6] or nil,
    watch = core[7] or nil, deps = core[9] or nil,
  }
  loaded = job
  if core[5] then job.worker, job.leased, job.queued, job.charged = string.match(core[5], '^(%S+) (%S+) (%S+) (%S+)') end
  if core[8] then
    local names = {}
    for name in string.gmatch(core[8], '%S+') do names[#names + 1] = name end
    for n, value in ipairs(redis.call('HMGET', key, unpack(names))) do job[names[n]] = value or nil end
  end
  job.priority, job.class, job.tenant, job.endpoint = parts_of(job.lane)
  check_record(job)
  touch(id, job.state, job.lane, job.ckey)
  return job
end

local QUARANTINE, WHY = ROOT .. ':quarantine', ROOT .. ':quarantine_why'
local WHY_MAX = 300

-- What was raised: a text, or the table of a command that failed.
local function why_of(raised)
  return string.sub(type(raised) == 'table' and raised.err or tostring(raised), 1, WHY_MAX)
end

-- Takes a job that no script can move out of everything that would come back to it, and out of all counts. Its record stays, without
-- `state`: every script, also of the release before, takes that for no job. `quarantined` keeps the state it was in (`state`, where the
-- caller knows better than the record). quarantine.lua puts it back or ends it.
local function quarantine(id, state, why)
  local key, now = job_key(id), asked_at or clock('')
  redis.call('ZADD', QUARANTINE, 'NX', now, id)
  redis.call('HSET', WHY, id, why)
  for _, place in ipairs({':leases', ':scheduled', ':deadlines', ':ended'}) do redis.call('ZREM', ROOT .. place, id) end
  redis.call('ZREM', ROOT .. ':settle', 'ready ' .. id)
  local record = redis.pcall('HMGET', key, 'state', 'lane', 'ckey', 'batch', 'fence')
  -- It is no hash, or was quarantined before.
  if record.err or not record[1] then return end
  local was = state or loaded and loaded.id == id and loaded.state or record[1]
  if parts_of(record[2] or '') then touch(id, was, record[2], record[3]) end
  redis.call('HSET', key, 'quarantined', was)
  redis.call('HDEL', key, 'state')
  -- Whoever runs it has lost it.
  if was == 'running' then
    redis.call('HSET', key, 'fence', (tonumber(string.match(record[5] or '', '^%d+')) or 0) + 1)
  end
  local _, _, tenant, endpoint = parts_of(record[2] or '')
  if not OPEN_STATES[was] then return end
  -- The script that could not end it may have got so far.
  redis.call('HDEL', key, 'ended', 'error')
  if not endpoint then return end
  redis.pcall('ZREM', ROOT .. ':dead:' .. tenant, id)
  for _, gate in ipairs({'t:' .. tenant, 'e:' .. tenant .. ':' .. endpoint}) do
    count(ROOT .. ':open', gate, -1)
    if was == 'running' then
      count(ROOT .. ':running', gate, -1)
      free(gate)
    end
  end
  if was == 'queued' then count(ROOT .. ':ready', record[2], -1) end
  if was == 'running' and record[4] then count(batch_key(record[4]), 'running', -1) end
  if record[3] and string.match(record[3], '^%d+:') then
    local gate = key_gate(tenant, record[3])
    if was == 'running' then count(ROOT .. ':running', gate, -1) end
    -- Whoever waits for the key is let on by the next `promote`.
    redis.call('ZADD', ROOT .. ':holds', now, gate)
  end
end

local function conclude(id, state, counts, stops, ends, done, ...)
  if done then return true, ... end
  uncount(counts)
  for n = #stopped, stops + 1, -1 do stopped[n] = nil end
  for n = #ended, ends + 1, -1 do ended[n] = nil end
  quarantine(id, state, why_of((...)))
  return false
end

-- Runs `body` for one job of a call. What it raises is that job's own: what it has counted is taken back, the job goes to the quarantine, and
-- the others go on. Returns whether all went well, and what `body` returned. `state`: the job's before, if it was not loaded with `load`.
local function guarded(id, state, body, ...)
  return conclude(id, state, #journal, #stopped, #ended, pcall(body, ...))
end

-- Runs a part of a call for which no job is to blame. What it raises is counted (`:faults`) and keeps no other part from its work. Returns
-- what `body` returned; nil when it raised.
local function attempt(part, body, ...)
  local done, answer = pcall(body, ...)
  if done then return answer end
  redis.pcall('HINCRBY', ROOT .. ':faults', part, 1)
  redis.log(redis.LOG_WARNING, 'stokehold: ' .. part .. ': ' .. why_of(answer))
end
