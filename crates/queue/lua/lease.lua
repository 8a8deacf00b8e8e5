#!lua flags=allow-oom
-- lease: queued -> running, for up to `want` jobs from the shelves within reach; or the waiter is parked, in the same step.
-- Most urgent priority first, then the class and the tenant whose turn it is by fair share, then a tenant's lanes in turn, then a
-- lane's front before its end. What the worker has loaded goes first, unless whoever's turn it is has waited for `patience_ms`, and needs
-- no room that is not taken already: it goes also where its class is out of reach, as far as the loaded model takes more. Work that has waited for `age_after_ms` and was passed over PASSED_MAX times goes before more
-- urgent work once, so that nothing starves.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 worker_id | 3 want | 4 reach_gib | 5 lease_ms | 6 nonce | 7 waiter ("" = do not park) |
--       8 age_after_ms | 9 rank (0 to 999999: of waiters with the same reach the lowest is woken) | 10 patience_ms |
--       11 the lanes of what it has loaded, without their priority, each with how many jobs more it takes:
--          "<class>:<tenant>:<endpoint>*<jobs> ..." |
--       12 the class that it has made room for: nothing else is leased ("" = all within reach) |
--       13 bytes of specs and inputs after which no further job is added, so that one call holds neither Redis nor its reader for long |
--       14 slots of the worker: it holds no more than they run and a few ahead ("" = no bound) | 15 parts of slots that its leases on other
--       shards take
--       reach_gib: for each set of demands that the worker meets its largest card, "<demands>:<GiB> ..."; the waiter: as wake() knows it
-- Reply {"ok" | "again" | "full", then per lease: id, lane, spec, input, attempt, fence, queued_ms, behind}; "again": much was in the way,
--       call once more; "full": the worker holds as many as it may, and is not parked; behind: jobs that the lane has left, as far as its
--       limits let them start
local now, worker, want, reach, only = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), reach_of(ARGV[4]), tonumber(ARGV[12])
local expiry, nonce, waiter, age_after = now + tonumber(ARGV[5]), ARGV[6], ARGV[7], tonumber(ARGV[8])
local rank, patience, warm, takes, warm_of = tonumber(ARGV[9]), tonumber(ARGV[10]), {}, {}, {}
for place, jobs in string.gmatch(ARGV[11], '(%S+)%*(%d+)') do
  local class = tonumber(string.match(place, '^%d+'))
  warm_of[class] = warm_of[class] or {}
  for _, places in ipairs({warm, warm_of[class]}) do places[#places + 1] = place end
  takes[place] = tonumber(jobs)
end
local PASSED_MAX = 19 -- aged work gets at least every twentieth start
local WARM_MS = 60000 -- a waiter that lasts parks again sooner
local LATE_MS = {['0'] = 30000, ['1'] = 300000, ['2'] = 3600000} -- by priority: who has waited for longer starts late
local LEASE_PARTS = 8 -- of each lease in the reply
local IN_THE_WAY = 100 -- entries and lanes a call may clear that give no lease
local reply, leases, taken, cleared, bytes, bytes_max = {'ok'}, {}, 0, 0, 0, tonumber(ARGV[13])

-- What the worker holds, in parts of slots: a job whose model takes `share` of them at once in one slot takes so much less of it. Beyond its
-- slots it may hold a few jobs ahead: as many as it ends in a moment, and those whose ends and results are on their way.
local SLOT, AHEAD_MS, AHEAD_MAX, SPARE = 1000000, 500, 300, 32
local RUNS_MAX = 1000 -- leases that one heartbeat extends
local RUNS_TTL_MS = 7 * 86400000
local slots, is_full, ahead = tonumber(ARGV[14]), false, 0
local given, held, held_jobs, is_checked = {}, nil, 0, false -- `given`: id, part, ... of this call

-- Adds up the worker's leases. `checks`: those that it does not hold any more are struck off first, which the release before leaves there.
local function count_held(checks)
  local fields, gone = redis.call('HGETALL', runs_key(worker)), {}
  held, held_jobs = tonumber(ARGV[15]), 0
  for n = 1, #fields, 2 do
    local job = checks and redis.call('HMGET', job_key(fields[n]), 'state', 'run')
    if job and (job[1] ~= 'running' or string.match(job[2] or '', '^%S+') ~= worker) then
      gone[#gone + 1] = fields[n]
    else
      held, held_jobs = held + (tonumber(fields[n + 1]) or SLOT), held_jobs + 1
    end
  end
  if #gone > 0 then redis.call('HDEL', runs_key(worker), unpack(gone)) end
  for n = 2, #given, 2 do held, held_jobs = held + given[n], held_jobs + 1 end
end

local function has_place(part)
  return held_jobs < RUNS_MAX and held + part <= slots * SLOT + ahead * part
end

-- Whether the worker may hold one more job that takes this part of a slot.
local function may_hold(part)
  if not slots then return true end
  if not held then count_held(false) end
  if has_place(part) then return true end
  if not is_checked then
    is_checked = true
    count_held(true)
  end
  return has_place(part)
end

-- A job whose turn it is not is set aside; it keeps its place in its key's line.
local function wait_for_key(id, lane, gate, ix)
  redis.call('ZADD', waiting_key(gate), text(arrival(ix)), id .. ' ' .. lane)
  redis.call('HSET', job_key(id), 'entry', 'k')
end

-- Whether this worker could take a job of this lane now, as far as the lane's class and endpoint say.
local function serves(lane)
  local _, class, tenant, endpoint = parts_of(lane)
  class = tonumber(class)
  local fits = only and class == only or not only and (is_within(reach, class) or (takes[string.match(lane, '^%d+:(.*)$')] or 0) > 0)
  return fits and room('e:' .. tenant .. ':' .. endpoint, now) >= 1
end

-- A job with the same key that was submitted before this one, is no less urgent, and that this worker could take: it goes first, and
-- this one is set aside until it has started; or for KEY_WAIT_MS, should it not start. One whose lane is closed, or which needs another
-- worker, stops nobody.
local KEY_WAIT_MS = 2000
local to_front = {} -- id, lane, ... of those that were set aside and go first

-- Whether a queued job may start by its own times, and where it stands; nil for one that is not queued.
local function may_start(id)
  local job = redis.call('HMGET', job_key(id), 'state', 'entry', 'start_by', 'deadline')
  if job[1] ~= 'queued' then return nil end
  return tonumber(job[3] or math.huge) > now and tonumber(job[4] or math.huge) > now, job[2]
end

local function goes_after(lane, gate, ix)
  local line, served = waiting_key(gate), {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', line, '-inf', '(' .. text(arrival(ix)), 'LIMIT', 0, LINE_MAX)) do
    local id, other = string.match(member, '^(%x+) (.*)$')
    if served[other] == nil then served[other] = string.sub(other, 1, 1) <= string.sub(lane, 1, 1) and serves(other) end
    if served[other] then
      -- One that cannot be read is itself to blame, and not the one that would wait for it.
      local _, may, entry = guarded(id, 'queued', may_start, id)
      if may == nil then
        redis.call('ZREM', line, member)
      elseif may then
        if entry == 'k' then
          to_front[#to_front + 1] = id
          to_front[#to_front + 1] = other
        end
        redis.call('ZADD', ROOT .. ':holds', 'LT', now + KEY_WAIT_MS, gate)
        return true
      end
    end
  end
  return false
end

-- One job: from its entry to a running attempt. A record that is gone or stands elsewhere is skipped; its entry goes all the same. Returns
-- whether it was taken, and whether it stays where it is, since the worker holds as many as it may.
local function take(entry, id, lane, tenant, charged)
  local key = job_key(id)
  local job = redis.call('HMGET', key, 'state', 'ix', 'spec', 'input', 'attempt', 'fence', 'watch', 'opt', 'entry')
  if job[1] ~= 'queued' or (job[9] or job[2]) ~= entry then return false end
  if not job[3] or not job[4] then error('its spec or its input is missing', 0) end
  local part = math.ceil(SLOT / math.max(1, tonumber(string.match(job[3], '^{"share":(%d+)') or 1)))
  if not may_hold(part) then return false, true end
  local ckey, start_by, deadline, hook, batch
  if job[8] then ckey, start_by, deadline, hook, batch = unpack(redis.call('HMGET', key, 'ckey', 'start_by', 'deadline', 'hook', 'batch')) end
  touch(id, 'queued', lane, ckey)
  -- Its time is over, and `expire`, which has not come by yet, ends it.
  if tonumber(start_by or math.huge) <= now or tonumber(deadline or math.huge) <= now then return false end
  if ckey then
    local gate = key_gate(tenant, ckey)
    if counted(ROOT .. ':running', gate) >= key_max(ckey) or goes_after(lane, gate, job[2]) then
      wait_for_key(id, lane, gate, job[2])
      return false
    end
    leave_line(id, lane, gate)
    count(ROOT .. ':running', gate, 1)
  end
  local attempt, fence = (tonumber(job[5]) or 0) + 1, (fence_counter(job[6]) + 1) .. '.' .. nonce
  local queued = math.max(0, now - tonumber(string.match(entry, '%d+')))
  redis.call('HSET', key, 'state', 'running', 'attempt', attempt, 'fence', fence, 'run',
    -- Four words and no more: the release before reads no job of a fifth.
    worker .. ' ' .. text(now) .. ' ' .. text(queued) .. ' ' .. charged)
  given[#given + 1], given[#given + 2] = id, part
  if held then held, held_jobs = held + part, held_jobs + 1 end
  if job[9] then redis.call('HDEL', key, 'entry') end
  if start_by then
    redis.call('HDEL', key, 'start_by')
    if deadline then redis.call('ZADD', ROOT .. ':deadlines', deadline, id) else redis.call('ZREM', ROOT .. ':deadlines', id) end
  end
  if hook then tell({id = id, hook = hook, tenant = tenant}, 'job.started', attempt, now) end
  if batch then count(batch_key(batch), 'running', 1) end
  notify(id, job[7], now)
  count(ROOT .. ':ready', lane, -1)
  if attempt == 1 then
    grow('s:' .. lane, 1)
    if queued > LATE_MS[string.sub(lane, 1, 1)] then grow('l:' .. lane, 1) end
  end
  leases[#leases + 1] = expiry
  leases[#leases + 1] = id
  bytes = bytes + #job[3] + #job[4]
  -- The last part is filled in when the call is done.
  for _, part in ipairs({id, lane, job[3], job[4], tostring(attempt), fence, text(queued), ''}) do reply[#reply + 1] = part end
  return true
end

-- Takes up to `most` from a stream, fewer when the reply is full. How many jobs that gave, and whether there are more. An empty stream is
-- deleted, since it would keep its memory.
local function take_from(stream, mark, lane, tenant, most, charged)
  local entries = redis.call('XRANGE', stream, '-', '+', 'COUNT', most + 1)
  local gone, jobs, left = {}, 0, #entries > most
  for n = 1, math.min(most, #entries) do
    if bytes >= bytes_max then
      left = true
      break
    end
    local entry = entries[n]
    local id, done, is_taken, stays = id_of(entry[2][2])
    if id then done, is_taken, stays = guarded(id, 'queued', take, mark .. entry[1], id, lane, tenant, charged) end
    if stays then
      is_full, left = true, true
      break
    end
    gone[n] = entry[1]
    if done and is_taken then jobs = jobs + 1 end
  end
  cleared = cleared + #gone - jobs
  if not left and #gone > 0 then
    redis.call('DEL', stream)
  elseif #gone > 0 then
    redis.call('XDEL', stream, unpack(gone))
  end
  return jobs, left
end

-- Of this call, by priority: class, tag, ... in order; what virtual time its classes' shelves have come to and is not written yet (false:
-- none, but the tag has moved); the class whose next job is known to be young. By shelf: how many tenants stand there.
local tags_of, reached, young, tenants_on = {}, {{}, {}, [0] = {}}, {}, {}

-- Writes what this call has moved on, once for all that it served.
local function write_turns(priority)
  local tags = {}
  for n = 1, #(tags_of[priority] or {}), 2 do
    local class = tags_of[priority][n]
    local virtual = reached[priority][class]
    if virtual then redis.call('HSET', fair_key(priority, class), ':now', virtual) end
    if virtual ~= nil then
      tags[#tags + 1] = tags_of[priority][n + 1]
      tags[#tags + 1] = class
    end
  end
  if #tags > 0 then redis.call('ZADD', tags_key(priority), 'XX', unpack(tags)) end
  reached[priority] = {}
end

local function leave(priority, class, tenant)
  write_turns(priority)
  step_off(priority, class, tenant)
  tags_of[priority], tenants_on[shelf_key(priority, class)] = nil, nil
end

-- The first of these lanes that stands on its shelf, and whose model takes more. A tenant whose gate is closed does not stand on its
-- shelf, and its lanes wait.
local function loaded_lane(priority, places)
  for _, place in ipairs(places or {}) do
    local lane = priority .. ':' .. place
    local _, class, tenant = parts_of(lane)
    if takes[place] > 0 and redis.call('ZSCORE', lanes_key(priority, class, tenant), lane)
      and redis.call('ZSCORE', shelf_key(priority, class), tenant) then
      return lane
    end
  end
end

local function is_open(priority, class)
  if only then return class == only and is_within(reach, class) end
  return is_within(reach, class) or loaded_lane(priority, warm_of[class]) ~= nil
end

-- The class within reach whose turn it is, and how far its tag lies behind the next one's. Equal tags: the largest first.
local function class_of(priority)
  tags_of[priority] = tags_of[priority] or redis.call('ZRANGE', tags_key(priority), 0, -1, 'WITHSCORES')
  local tags, best, tag, rival = tags_of[priority], nil, nil, math.huge
  for n = 1, #tags, 2 do
    local class, mine = tonumber(tags[n]), tonumber(tags[n + 1])
    if is_open(priority, class) then
      if not best or mine < tag or (mine == tag and class > best) then
        rival = tag or rival
        best, tag = class, mine
      else
        rival = math.min(rival, mine)
      end
    end
  end
  return best, rival - (tag or 0)
end

-- Serves the tenant whose turn it is: at most `most` jobs, as many as it is due before the next tenant, from one of its lanes; or,
-- out of turn, a lane of what the worker has loaded.
local function serve(priority, class, lead, most, warm_lane)
  local shelf = shelf_key(priority, class)
  young[priority] = nil
  local head = redis.call('ZRANGE', shelf, 0, 1, 'WITHSCORES')
  local tenant, tag, rival, jumps = head[1], tonumber(head[2]), tonumber(head[4]), false
  local owner = warm_lane and select(3, parts_of(warm_lane)) or tenant
  if owner ~= tenant then
    tenant, tag, rival, jumps = owner, tonumber(redis.call('ZSCORE', shelf, owner)), nil, true
  end
  local gate, lanes = 't:' .. tenant, lanes_key(priority, class, tenant)
  local places, due = room(gate, now)
  if places < 1 then
    hold(gate, priority .. ':' .. class, now, due)
    leave(priority, class, tenant)
    cleared = cleared + 1
    return
  end
  -- It goes back when it has jobs left.
  local lane, turn
  if warm_lane then
    lane, turn = warm_lane, redis.call('ZSCORE', lanes, warm_lane)
    redis.call('ZREM', lanes, warm_lane)
  else
    lane, turn = unpack(redis.call('ZPOPMIN', lanes))
  end
  local siblings = lane and redis.call('ZCARD', lanes) or 0
  -- It stands there no more: a job that is called forward into it later in this call has to open it again.
  if lane then opened[lane] = nil end
  if not lane then
    leave(priority, class, tenant)
    cleared = cleared + 1
    return
  end
  local endpoint = select(4, parts_of(lane))
  local lane_gate = 'e:' .. tenant .. ':' .. endpoint
  local lane_places, lane_due = room(lane_gate, now)
  if lane_places < 1 then
    hold(lane_gate, lane, now, lane_due)
    if siblings == 0 then leave(priority, class, tenant) end
    cleared = cleared + 1
    return
  end

  local charged = expected_ms(tenant, endpoint)
  tenants_on[shelf] = tenants_on[shelf] or redis.call('ZCARD', shelf)
  ahead = SPARE + math.min(AHEAD_MAX, math.floor((slots or 0) * AHEAD_MS / math.max(1, charged)))
  local step, tenants = charged / limits(gate).weight, tenants_on[shelf]
  most = math.min(most, places, lane_places, math.floor(lead / (charged / tenants)) + 1)
  if rival then most = math.min(most, math.floor((rival - tag) / step) + 1) end
  if siblings > 0 then most = math.min(most, math.ceil(most / (siblings + 1))) end
  local paid = string.format('%.1f', charged)
  local jobs, left = take_from(front_key(lane), 'f', lane, tenant, most, paid)
  if not left then
    local more
    more, left = take_from(lane_key(lane), '', lane, tenant, most - jobs, paid)
    jobs = jobs + more
  end
  if jobs > 0 then
    redis.call('ZADD', shelf, 'XX', tag + jobs * step, tenant)
    local tags = tags_of[priority]
    for n = 1, #tags, 2 do
      if tonumber(tags[n]) == class then
        tags[n + 1] = tags[n + 1] + jobs * charged / tenants
        if not jumps then
          reached[priority][tags[n]] = tag + (jobs - 1) * step
        elseif reached[priority][tags[n]] == nil then
          reached[priority][tags[n]] = false
        end
      end
    end
    start_at(gate, jobs, now)
    start_at(lane_gate, jobs, now)
    taken = taken + jobs
  end
  if left then
    redis.call('ZADD', lanes, siblings > 0 and redis.call('INCR', ROOT .. ':turn') or turn, lane)
  elseif siblings == 0 then
    leave(priority, class, tenant)
  end
end

-- Since when the job that would be served next is ready; infinity when there is none.
local function ready_since(priority, class)
  return tonumber(string.match(next_entry(priority, class) or '', '^%d+') or math.huge)
end

-- Whether that job has waited too long. One that is young stays so until somebody there is served.
local function is_aged(priority, class)
  if young[priority] ~= class and now - ready_since(priority, class) < age_after then young[priority] = class end
  return young[priority] ~= class
end

local function place_of(lane) return string.match(lane, '^%d+:(.*)$') end

-- A lane of what the worker has loaded that may go before whoever's turn it is, or the only one there that can go; nil when none may.
local function warm_lane_of(priority, class)
  if only then return nil end
  if not is_within(reach, class) then return loaded_lane(priority, warm_of[class]) end
  local open = loaded_lane(priority, warm)
  local turn = open and next_lane(priority, class)
  if not turn or (takes[place_of(turn)] or 0) > 0 or now - ready_since(priority, class) >= patience then return nil end
  return open
end

local passed = redis.call('HMGET', ROOT .. ':passed', 1, 2)
passed = {tonumber(passed[1]) or 0, tonumber(passed[2]) or 0}
local before = {passed[1], passed[2]}
local waits = {redis.call('EXISTS', tags_key(1)) == 1, redis.call('EXISTS', tags_key(2)) == 1}

-- What to serve next: priority, class, lead, most, and the lane if it is out of turn.
local function choose()
  for priority = 1, 2 do
    if passed[priority] >= PASSED_MAX then
      local class, lead = class_of(priority)
      if class and is_aged(priority, class) then
        return priority, class, lead, 1, not is_within(reach, class) and loaded_lane(priority, warm_of[class]) or nil
      end
    end
  end
  for priority = 0, 2 do
    local class, lead = class_of(priority)
    if class then
      -- Not further than the next who has been passed over too often.
      local most = want - taken
      for lower = priority + 1, 2 do
        if waits[lower] and passed[lower] < PASSED_MAX then most = math.min(most, PASSED_MAX - passed[lower]) end
      end
      local lane = warm_lane_of(priority, class)
      if lane then return priority, tonumber((select(2, parts_of(lane)))), math.huge, math.min(most, takes[place_of(lane)]), lane end
      return priority, class, lead, most
    end
  end
end

-- Jobs that go before one with the same key are where they can be served.
local function call_those_before()
  for n = 1, #to_front, 2 do
    local id, lane = to_front[n], to_front[n + 1]
    if redis.call('HGET', job_key(id), 'entry') == 'k' then
      local priority, class = parts_of(lane)
      write_turns(tonumber(priority))
      call_forward(id, lane)
      tags_of[tonumber(priority)], tenants_on[shelf_key(priority, class)] = nil, nil
    end
  end
  to_front = {}
end

while taken < want and cleared < IN_THE_WAY and bytes < bytes_max and not is_full do
  local priority, class, lead, most, lane = choose()
  if not priority then break end
  local had = taken
  serve(priority, class, lead, most, lane)
  call_those_before()
  if lane then takes[place_of(lane)] = takes[place_of(lane)] - (taken - had) end
  if taken > had then
    if priority > 0 then passed[priority] = 0 end
    for lower = priority + 1, 2 do
      passed[lower] = waits[lower] and passed[lower] + taken - had or 0
    end
  end
end
for priority = 0, 2 do write_turns(priority) end
for priority = 1, 2 do
  if not waits[priority] then passed[priority] = 0 end
  if passed[priority] ~= before[priority] then
    if passed[priority] == 0 then
      redis.call('HDEL', ROOT .. ':passed', priority)
    else
      redis.call('HSET', ROOT .. ':passed', priority, math.min(passed[priority], 1000))
    end
  end
end

-- Jobs that a lane has left, as far as its limits let them start now.
local function jobs_behind(lane)
  local _, _, tenant, endpoint = parts_of(lane)
  local most = math.min(room('t:' .. tenant, now), (room('e:' .. tenant .. ':' .. endpoint, now)))
  return text(math.max(0, math.min(most, counted(ROOT .. ':ready', lane))))
end

if taken > 0 then
  redis.call('ZADD', ROOT .. ':leases', unpack(leases))
  redis.call('HSET', runs_key(worker), unpack(given))
  redis.call('PEXPIRE', runs_key(worker), RUNS_TTL_MS)
  local behind = {}
  for n = 2, #reply, LEASE_PARTS do
    local lane = reply[n + 1]
    behind[lane] = behind[lane] or jobs_behind(lane)
    reply[n + LEASE_PARTS - 1] = behind[lane]
  end
end
if taken > 0 or is_full then
  -- The wake that brought this worker here may have stood for more jobs than it took: pass it on, if only for want of room here.
  for place in pairs(takes) do takes[place] = math.huge end
  local _, more, _, _, lane = choose()
  if more then wake(more, lane) end
end
if taken > 0 then
  return reply
elseif is_full then
  reply[1] = 'full'
elseif cleared >= IN_THE_WAY then
  reply[1] = 'again'
elseif waiter ~= '' then
  for demands, gib in pairs(reach) do redis.call('ZADD', parked_key(demands), gib + rank / 1000000, waiter) end
  for _, place in ipairs(warm) do
    redis.call('ZADD', warm_key(place), rank, waiter)
    redis.call('PEXPIRE', warm_key(place), WARM_MS)
  end
end
return reply
