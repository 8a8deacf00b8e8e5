#!lua flags=allow-oom
-- readmit: a job in the quarantine -> queued (as requeued, also if it was running) | scheduled | blocked. An ended job
-- returns to the ended ones.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 retention_ms | 3 id
-- Reply {"ok", state} | {"not_found"} | {"unreadable", why} it stays in the quarantine
--- @include "lib/announce", "lib/attempt", "lib/clock", "lib/counts", "lib/enqueue", "lib/key_queue"
--- @include "lib/keys", "lib/lane_parts", "lib/load", "lib/raw_ids", "lib/recount", "lib/scope_keys"
--- @include "lib/set_aside", "lib/states", "lib/wake", "lib/watchers"
local now, retention_ms, id = clock(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local key = job_key(id)
local was, state

local function must(holds, field) return holds or error('the field "' .. field .. '" cannot be read', 0) end

local function readmit()
  local record = redis.call('HMGET', key, 'quarantined', 'lane', 'spec', 'input', 'run_after', 'ended', 'keep')
  was = must(record[1], 'quarantined')
  must(parts_of(record[2] or ''), 'lane')
  must(record[3] and pcall(cjson.decode, record[3]), 'spec')
  must(record[4], 'input')
  touch(id, nil, record[2])
  state = was == 'running' and 'queued' or was
  redis.call('HSET', key, 'state', state)
  redis.call('HDEL', key, 'quarantined')
  local job = load(id)
  if OPEN_STATES[state] then
    count(ROOT .. ':open', 't:' .. job.tenant, 1)
    count(ROOT .. ':open', 'e:' .. job.tenant .. ':' .. job.endpoint, 1)
    local due = math.min(tonumber(job.deadline or math.huge), tonumber(job.start_by or math.huge))
    if due < math.huge then redis.call('ZADD', ROOT .. ':deadlines', due, id) end
  end
  if state == 'queued' then
    redis.call('HDEL', key, 'run', 'progress', 'run_after', 'waits')
    redis.call('HSET', key, 'entry', enqueue(raw_of(id), job.lane, true))
    if job.ckey then join_key_queue(id, job.lane, key_scope(job.tenant, job.ckey)) end
    wake(job.class, job.lane)
  elseif state == 'scheduled' then
    redis.call('ZADD', ROOT .. ':scheduled', must(tonumber(record[5] or now), 'run_after'), id)
  elseif state == 'blocked' then
    redis.call('ZADD', ROOT .. ':settle', now, 'ready ' .. id)
    announce('settle')
  else
    redis.call('ZADD', ROOT .. ':ended',
      must(tonumber(record[6] or now), 'ended') + (tonumber(record[7]) or retention_ms), id)
  end
  notify_watchers(id, job.watch, now)
end

if not redis.call('ZSCORE', QUARANTINE, id) then return {'not_found'} end
local done, raised = pcall(readmit)
if done then
  redis.call('ZREM', QUARANTINE, id)
  redis.call('HDEL', WHY, id)
  return {'ok', state}
end
uncount(0)
if was then
  redis.call('HSET', key, 'quarantined', was)
  redis.call('HDEL', key, 'state')
end
return {'unreadable', why_of(raised)}
