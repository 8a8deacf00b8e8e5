#!lua
-- submit: nothing -> queued | scheduled, for all jobs of the call or for none.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 idempotency_ttl_ms | 3 batch ("" = none) | 4 lines fed before |
--       5 lines fed afterwards | then per job: id | tenant | lane | spec | input | run_after_ms (0 = now) | idempotency_key ("" = none) | request_hash
-- Reply {"ok", id, ...} in order, a repeat answers the first submit's id | {"conflict", number of the job, from 1} |
--       {"stale_guard"} the batch was fed otherwise
local now, PER_JOB = clock(ARGV[1]), 8
local HEAD = 5
local count = (#ARGV - HEAD) / PER_JOB
local known = {}

if ARGV[3] ~= '' and redis.call('HGET', ROOT .. ':b:' .. ARGV[3], 'fed') ~= ARGV[4] then return {'stale_guard'} end

for n = 1, count do
  local base = HEAD + (n - 1) * PER_JOB
  if ARGV[base + 7] ~= '' then
    local held = redis.call('GET', ROOT .. ':i:' .. ARGV[base + 2] .. ':' .. ARGV[base + 7])
    if held then
      local id, hash = string.match(held, '^(%x+) (.*)$')
      if hash ~= ARGV[base + 8] then return {'conflict', n} end
      known[n] = id
    end
  end
  if not known[n] and redis.call('EXISTS', job_key(ARGV[base + 1])) == 1 then known[n] = ARGV[base + 1] end
end

if ARGV[3] ~= '' then redis.call('HSET', ROOT .. ':b:' .. ARGV[3], 'fed', ARGV[5]) end
local reply, classes = {'ok'}, {}
for n = 1, count do
  local base = HEAD + (n - 1) * PER_JOB
  local id, tenant, lane = ARGV[base + 1], ARGV[base + 2], ARGV[base + 3]
  if not known[n] then
    local run_after = tonumber(ARGV[base + 6])
    if run_after > now then
      redis.call('HSET', job_key(id), 'state', 'scheduled', 'lane', lane, 'spec', ARGV[base + 4], 'input', ARGV[base + 5],
        'run_after', run_after)
      redis.call('ZADD', ROOT .. ':scheduled', run_after, id)
    else
      local entry, class = enqueue(id, lane, false)
      redis.call('HSET', job_key(id), 'state', 'queued', 'lane', lane, 'spec', ARGV[base + 4], 'input', ARGV[base + 5],
        'entry', entry)
      classes[class] = true
    end
    -- The record knows its entry, so that forgetting the job forgets that too.
    redis.call('HSET', job_key(id), 'ix', redis.call('XADD', ROOT .. ':index:' .. tenant, '*', 'j', id))
    if ARGV[base + 7] ~= '' then
      redis.call('SET', ROOT .. ':i:' .. tenant .. ':' .. ARGV[base + 7], id .. ' ' .. ARGV[base + 8], 'PX', ARGV[2])
    end
  end
  reply[n + 1] = known[n] or id
end
for class in pairs(classes) do wake(class) end
return reply
