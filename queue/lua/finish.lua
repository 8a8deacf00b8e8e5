#!lua flags=allow-oom
-- finish: running -> succeeded | failed | scheduled (retry) | queued (on a larger card) | blocked (steps follow), for each report whose
-- caller still holds the lease.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 retention_ms | 3 max_infra_attempts | 4 max_oom_attempts | 5 poison_crashes |
--       6 poison_workers | 7 error JSON of a poison job | then per report:
--       id | fence | kind (inline, stored, final, model, crash, oom, infra, outgrown) | value | tail | jitter (0 to 1) | error code;
--       of outgrown the class that it goes on at, "" when there is none | jobs that shared its time |
--       milliseconds that it waited inside its worker |
--       what is counted of its run: kind of card | run_ms ("" = it did not run) | loaded (cold, disk, "" = not) | load_ms;
--       what was spent on it: machine | milliseconds of a slot without loading | micro-dollars of running | of loading
--       value: the result JSON | its size in S3 | the error JSON; tail: the attempt's timing, cost and error, JSON
-- Reply {"ok" | "stale_fence" | "already_ended" | "not_found", ...} in order
--- @include "lib/announce", "lib/clock", "lib/ends", "lib/fences", "lib/flow", "lib/guard", "lib/keys"
--- @include "lib/learn_cost", "lib/load", "lib/memory", "lib/requeue", "lib/spent", "lib/stop", "lib/text"
--- @include "lib/timings", "lib/wake", "lib/watchers"
local now, retention, PER_REPORT = clock(ARGV[1]), ARGV[2], 17
local USUAL_ATTEMPTS = 3 -- of a spec that does not say (stored_spec.rs)
local max_infra, max_oom, poison_crashes, poison_workers = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local poison = ARGV[7]
local TERMINAL = {succeeded = true, failed = true, cancelled = true, expired = true}

local function contains(list, value)
  for _, one in ipairs(list) do
    if one == value then return true end
  end
  return false
end

-- Counts a crash. True when the job has crashed too often on too many workers.
local function is_poison(job)
  local before = redis.call('HMGET', job_key(job.id), 'crashes', 'crashed')
  local crashes, workers, distinct = (tonumber(before[1] or 0)) + 1, before[2] or '', 1
  for worker in string.gmatch(workers, '%S+') do
    if worker ~= job.worker then distinct = distinct + 1 end
  end
  if not string.find(' ' .. workers .. ' ', ' ' .. job.worker .. ' ', 1, true) then workers = workers .. ' ' .. job.worker end
  redis.call('HSET', job_key(job.id), 'crashes', crashes, 'crashed', workers)
  return crashes >= poison_crashes and distinct >= poison_workers
end

-- Charges a failure to its budget. Returns how often that budget was used and how often it may be, and the spec's retry policy.
local function spend(job, kind, code)
  local spec = cjson.decode(redis.call('HGET', job_key(job.id), 'spec'))
  local policy = spec['retry'] or {backoff_ms = 1000, backoff_max_ms = 60000, jitter = 0.5}
  local budget, most = 'failures', spec['max_attempts'] or USUAL_ATTEMPTS
  if kind == 'infra' then
    budget, most = 'lost', max_infra
  elseif kind == 'oom' or kind == 'outgrown' then
    budget, most = 'oom', code == '' and 1 or max_oom
  elseif kind == 'final' or (policy['on'] and not contains(policy['on'], code)) then
    most = 1
  end
  local used = redis.call('HINCRBY', job_key(job.id), budget, 1)
  return used, most, policy
end

local function fail(job, kind, value, jitter, code, ...)
  local key = job_key(job.id)
  if kind == 'crash' and is_poison(job) then return bury(job, 'failed', now, retention, 'error', poison, ...) end
  local used, most, policy = spend(job, kind, code)
  if used >= most then return bury(job, 'failed', now, retention, 'error', value, ...) end
  -- As retry.rs: backoff * 2^(used - 1), at most backoff_max, times 1 - policy.jitter to 1.
  local doubled = math.min(policy['backoff_max_ms'], policy['backoff_ms'] * 2 ^ (used - 1))
  local due = now + math.floor(doubled * (1 - policy['jitter'] + policy['jitter'] * jitter))
  redis.call('HSET', key, 'state', 'scheduled', 'run_after', text(due), 'fence', fence_counter(job.fence) + 1, ...)
  redis.call('HDEL', key, 'run', 'progress')
  redis.call('ZADD', ROOT .. ':scheduled', due, job.id)
  notify(job.id, job.watch, now)
end

local classes = {} -- that somebody came to

-- The model needs a larger card than this one was: the job goes on at the front of that class. No budget pays for what was declared
-- wrongly, and a class is only ever left upwards. What it asks for beside memory stays.
local function reshelve(job, gib, ...)
  local class = math.floor(job.class / 1000) * 1000 + gib
  job.class, job.lane = class, table.concat({job.priority, class, job.tenant, job.endpoint}, ':')
  requeue(job, now, 'lane', job.lane, ...)
  classes[class] = job.lane
end

-- What is learned of an endpoint on a kind of card, and what was spent.
local function count_run(job, now, kind, run_ms, loaded, load_ms, ...)
  local of = job.tenant .. ':' .. job.endpoint .. ':' .. kind
  if run_ms ~= '' then
    grow('n:' .. of, 1)
    grow('r:' .. of, tonumber(run_ms))
  end
  if loaded ~= '' then
    grow(loaded .. ':' .. of, 1)
    grow(loaded .. '_ms:' .. of, tonumber(load_ms))
  end
  count_spent(job, now, ...)
end

local function finish(id, fence, kind, value, tail, jitter, code, sharers, waited, ...)
  local job = load(id)
  if not job then return 'not_found' end
  if job.fence ~= fence then
    -- The attempt whose result waits to be allowed, told again.
    local won = redis.call('HGET', job_key(id), 'won')
    return won and string.match(won, ' (.*)$') == fence and 'already_ended' or 'stale_fence'
  end
  if TERMINAL[job.state] then return 'already_ended' end
  if job.state ~= 'running' then return 'stale_fence' end

  local succeeded = kind == 'inline' or kind == 'stored'
  -- A small one is within what every record is counted with.
  if kind == 'inline' and #value > RECORD_BYTES / 2 then take_memory(id, job.tenant, #value) end
  local attempt, entry = closed_attempt(job, now, succeeded and 'succeeded' or 'failed', tail)
  job.sharers, job.waited = sharers, waited
  learn_cost(job, now)
  count_run(job, now, ...)
  count_timing(job, now, succeeded, tail, ...)
  stop(job, now)
  if kind == 'oom' or kind == 'outgrown' then redis.call('HINCRBY', job_key(id), 'ooms', 1) end
  if kind == 'outgrown' and code ~= '' and tonumber(code) > job.class % 1000 then
    reshelve(job, code, attempt, entry)
  elseif not succeeded then
    fail(job, kind, value, jitter, code, attempt, entry)
  elseif job.after then
    -- The result is there and nobody sees it before the steps that follow have allowed it.
    redis.call('HSET', job_key(id), 'state', 'blocked', 'waits', 0, kind, value, 'won', job.attempt .. ' ' .. fence, 'fence',
      fence_counter(fence) + 1, attempt, entry)
    redis.call('HDEL', job_key(id), 'run', 'progress')
    redis.call('ZADD', ROOT .. ':settle', now, 'ready ' .. id)
    announce('settle')
    notify(id, job.watch, now)
  else
    bury(job, 'succeeded', now, retention, kind, value, attempt, entry)
  end
  return 'ok'
end

local reply = {}
for n = 8, #ARGV, PER_REPORT do
  local done, word = guarded(ARGV[n], nil, finish, ARGV[n], ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], ARGV[n + 4], tonumber(ARGV[n + 5]),
    ARGV[n + 6], tonumber(ARGV[n + 7]), tonumber(ARGV[n + 8]), unpack(ARGV, n + 9, n + 16))
  -- One that is in the quarantine now has no holder.
  reply[#reply + 1] = done and word or 'stale_fence'
end
for class, lane in pairs(classes) do wake(class, lane) end
return reply
