#!lua flags=allow-oom
-- finish: running -> succeeded | failed | scheduled (retry), for each report whose caller still holds the lease.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 retention_ms | 3 retry_base_ms | 4 retry_max_ms | 5 max_infra_attempts | then per report:
--       id | fence | kind (inline, stored, final, model, infra) | value | tail | jitter (0 to 1)
--       value: the result JSON | its size in S3 | the error JSON; tail: the attempt's timing and error, JSON after a comma
-- Reply {"ok" | "stale_fence" | "already_ended" | "not_found", ...} in order
local now, retention, PER_REPORT = clock(ARGV[1]), ARGV[2], 6
local retry_base, retry_max, max_infra = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local TERMINAL = {succeeded = true, failed = true, cancelled = true, expired = true}

local function finish(id, fence, kind, value, tail, jitter)
  local key = job_key(id)
  local job = redis.call('HMGET', key, 'state', 'fence', 'attempt', 'worker', 'leased', 'queued', 'watch', 'failures', 'lost',
    'spec')
  if not job[1] then return 'not_found' end
  if job[2] ~= fence then return 'stale_fence' end
  if TERMINAL[job[1]] then return 'already_ended' end
  if job[1] ~= 'running' then return 'stale_fence' end

  local succeeded = kind == 'inline' or kind == 'stored'
  close_attempt(id, job[3], job[4], fence, job[5], job[6], now, succeeded and 'succeeded' or 'failed', tail)
  redis.call('ZREM', ROOT .. ':leases', id)

  if succeeded then
    redis.call('HSET', key, 'state', 'succeeded', 'ended', now, kind, value)
    bury(id, retention, now)
  else
    local budget, used, most = 'failures', (tonumber(job[8]) or 0) + 1, 1
    if kind == 'infra' then
      budget, used, most = 'lost', (tonumber(job[9]) or 0) + 1, max_infra
    elseif kind == 'model' then
      most = cjson.decode(job[10])['max_attempts']
    end
    redis.call('HSET', key, budget, used)
    if used >= most then
      redis.call('HSET', key, 'state', 'failed', 'ended', now, 'error', value)
      bury(id, retention, now)
    else
      -- Full backoff in the upper half: base * 2^(used - 1), at most retry_max, times 0.5 to 1 (retry.rs).
      local delay = math.floor(math.min(retry_max, retry_base * 2 ^ (used - 1)) * (0.5 + jitter / 2))
      redis.call('HSET', key, 'state', 'scheduled', 'run_after', now + delay, 'fence', fence_counter(fence) + 1)
      redis.call('HDEL', key, 'worker', 'leased', 'queued', 'progress')
      redis.call('ZADD', ROOT .. ':scheduled', now + delay, id)
    end
  end
  notify(id, job[7], now)
  return 'ok'
end

local reply = {}
for n = 6, #ARGV, PER_REPORT do
  reply[#reply + 1] = finish(ARGV[n], ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], ARGV[n + 4], tonumber(ARGV[n + 5]))
end
return reply
