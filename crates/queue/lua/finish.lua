#!lua flags=allow-oom
-- finish: running -> succeeded | failed | scheduled (retry) | queued (on a larger GPU) | blocked (steps follow), for
-- each report whose caller still holds the lease.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 retention_ms | 3 max_infra_attempts | 4 max_oom_attempts | 5 poison_crashes |
--       6 poison_workers | 7 error JSON of a poison job | then per report a MessagePack map:
--       id, fence, kind (inline, stored, final, model, crash, oom, infra, outgrown),
--       value (the result JSON, its size in S3, the error JSON), tail (timing, cost and error of the attempt, JSON),
--       jitter (0 to 1), code (of an error, unless the job has outgrown its GPU),
--       class_gib (GiB of the class on which a job that has outgrown its GPU continues; none = no GPU is large enough),
--       sharers (jobs that shared its time), turn_ms (how long it waited for a slot inside its worker);
--       counted for the run: gpu, run_ms (none = it did not run), load (cold, disk; none = not loaded), load_ms;
--       spent on the run: machine, slot_ms (without loading), run_usd_micros, load_usd_micros;
--       prompt_tokens, cached_tokens, completion_tokens (none = the result does not have them)
-- Reply {"ok" | "stale_fence" | "already_ended" | "not_found", ...} in order
--- @include "lib/announce", "lib/clock", "lib/ends", "lib/fences", "lib/flow", "lib/guard", "lib/keys"
--- @include "lib/learn_cost", "lib/load", "lib/memory", "lib/requeue", "lib/spent", "lib/stop", "lib/text"
--- @include "lib/timings", "lib/wake", "lib/watchers"
local now, retention_ms = clock(ARGV[1]), ARGV[2]
local USUAL_ATTEMPTS = 3 -- the default of max_attempts (stored_spec.rs)
local max_infra, max_oom, poison_crashes, poison_workers = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]),
  tonumber(ARGV[6])
local poison = ARGV[7]
local TERMINAL = {succeeded = true, failed = true, cancelled = true, expired = true}

local function contains(list, value)
  for _, one in ipairs(list) do
    if one == value then return true end
  end
  return false
end

-- Counts a crash. Returns whether the job has crashed too often on too many workers.
local function is_poison(job)
  local before = redis.call('HMGET', job_key(job.id), 'crashes', 'crashed')
  local crashes, workers, distinct = (tonumber(before[1] or 0)) + 1, before[2] or '', 1
  for worker in string.gmatch(workers, '%S+') do
    if worker ~= job.worker then distinct = distinct + 1 end
  end
  if not string.find(' ' .. workers .. ' ', ' ' .. job.worker .. ' ', 1, true) then
    workers = workers .. ' ' .. job.worker
  end
  redis.call('HSET', job_key(job.id), 'crashes', crashes, 'crashed', workers)
  return crashes >= poison_crashes and distinct >= poison_workers
end

-- Charges a failure to its budget. Returns how often the budget was used, how often it may be used, and the spec's
-- retry policy.
local function spend(job, report)
  local kind, code = report.kind, report.code
  local spec = cjson.decode(redis.call('HGET', job_key(job.id), 'spec'))
  local policy = spec['retry'] or {backoff_ms = 1000, backoff_max_ms = 60000, jitter = 0.5}
  local budget, max = 'failures', spec['max_attempts'] or USUAL_ATTEMPTS
  if kind == 'infra' then
    budget, max = 'lost', max_infra
  elseif kind == 'oom' or kind == 'outgrown' then
    budget, max = 'oom', kind == 'outgrown' and not report.class_gib and 1 or max_oom
  elseif kind == 'final' or (policy['on'] and not contains(policy['on'], code)) then
    max = 1
  end
  local used = redis.call('HINCRBY', job_key(job.id), budget, 1)
  return used, max, policy
end

local function fail(job, report, ...)
  local key = job_key(job.id)
  if report.kind == 'crash' and is_poison(job) then
    return end_job(job, 'failed', now, retention_ms, 'error', poison, ...)
  end
  local used, max, policy = spend(job, report)
  if used >= max then return end_job(job, 'failed', now, retention_ms, 'error', report.value, ...) end
  -- As in retry.rs: backoff * 2^(used - 1), at most backoff_max, times a factor between 1 - policy.jitter and 1.
  local doubled = math.min(policy['backoff_max_ms'], policy['backoff_ms'] * 2 ^ (used - 1))
  local due = now + math.floor(doubled * (1 - policy['jitter'] + policy['jitter'] * report.jitter))
  redis.call('HSET', key, 'state', 'scheduled', 'run_after', text(due), 'fence', fence_counter(job.fence) + 1, ...)
  redis.call('HDEL', key, 'run', 'progress')
  redis.call('ZADD', ROOT .. ':scheduled', due, job.id)
  notify_watchers(job.id, job.watch, now)
end

local classes = {} -- class -> lane, for jobs that moved to a larger class

-- Moves a job whose model needs a larger GPU to that class, among the requeued entries. The attempt is not charged to a
-- budget, and a job never moves to a smaller class. Its other requirements stay the same.
local function move_to_class(job, gib, ...)
  local class = math.floor(job.class / 1000) * 1000 + gib
  job.class, job.lane = class, table.concat({job.priority, class, job.tenant, job.endpoint}, ':')
  requeue(job, now, 'lane', job.lane, ...)
  classes[class] = job.lane
end

-- Counts durations of an endpoint on a kind of GPU, and what the run cost.
local function count_run(job, now, report)
  local of = job.tenant .. ':' .. job.endpoint .. ':' .. report.gpu
  if report.run_ms then
    grow('n:' .. of, 1)
    grow('r:' .. of, report.run_ms)
  end
  if report.load then
    grow(report.load .. ':' .. of, 1)
    grow(report.load .. '_ms:' .. of, report.load_ms)
  end
  local tokens = report.prompt_tokens and {report.prompt_tokens, report.cached_tokens, report.completion_tokens}
  for n, name in ipairs(tokens and TOKENS or {}) do grow(name .. ':' .. job.tenant .. ':' .. job.endpoint, tokens[n]) end
  count_spent(job, now, report.machine, tokens, report.slot_ms, report.run_usd_micros, report.load_usd_micros)
end

local function finish(report)
  local id, fence, kind, value = report.id, report.fence, report.kind, report.value
  local job = load(id)
  if not job then return 'not_found' end
  if job.fence ~= fence then
    -- A repeated report of the attempt whose result waits for the steps that follow.
    local won = redis.call('HGET', job_key(id), 'won')
    return won and string.match(won, ' (.*)$') == fence and 'already_ended' or 'stale_fence'
  end
  if TERMINAL[job.state] then return 'already_ended' end
  if job.state ~= 'running' then return 'stale_fence' end

  local succeeded = kind == 'inline' or kind == 'stored'
  -- The size of every record already includes a small result.
  if kind == 'inline' and #value > RECORD_BYTES / 2 then take_memory(id, job.tenant, #value) end
  local attempt, entry = closed_attempt(job, now, succeeded and 'succeeded' or 'failed', report.tail)
  job.sharers, job.waited = report.sharers, report.turn_ms
  learn_cost(job, now)
  count_run(job, now, report)
  count_timing(job, now, succeeded, report.tail, report.run_usd_micros + report.load_usd_micros)
  stop(job, now)
  if kind == 'oom' or kind == 'outgrown' then redis.call('HINCRBY', job_key(id), 'ooms', 1) end
  if report.class_gib and report.class_gib > job.class % 1000 then
    move_to_class(job, report.class_gib, attempt, entry)
  elseif not succeeded then
    fail(job, report, attempt, entry)
  elseif job.after then
    -- The result is stored, but stays hidden until the steps that follow have approved it.
    redis.call('HSET', job_key(id), 'state', 'blocked', 'waits', 0, kind, value, 'won', job.attempt .. ' ' .. fence,
      'fence', fence_counter(fence) + 1, attempt, entry)
    redis.call('HDEL', job_key(id), 'run', 'progress')
    redis.call('ZADD', ROOT .. ':settle', now, 'ready ' .. id)
    announce('settle')
    notify_watchers(id, job.watch, now)
  else
    end_job(job, 'succeeded', now, retention_ms, kind, value, attempt, entry)
  end
  return 'ok'
end

local reply = {}
for n = 8, #ARGV do
  local report = cmsgpack.unpack(ARGV[n])
  local done, word = guarded(report.id, nil, finish, report)
  -- A job that is in the quarantine now has no valid lease.
  reply[#reply + 1] = done and word or 'stale_fence'
end
for class, lane in pairs(classes) do wake(class, lane) end
return reply
