#!lua flags=allow-oom
-- discard: a job in the quarantine -> failed. If its record does not allow that, or the job had ended before, the
-- record is deleted with all references to it.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 retention_ms | 3 id | 4 error JSON | 5 "1" = delete it in any case
-- Reply {"failed"} | {"deleted"} | {"not_found"}
--- @include "lib/announce", "lib/clock", "lib/counts", "lib/ends", "lib/give_back", "lib/job_keys"
--- @include "lib/keys", "lib/lane_parts", "lib/set_aside", "lib/states"
local now, id = clock(ARGV[1]), ARGV[3]
local key = job_key(id)
local FIELDS_HERE = {'quarantined', 'lane', 'spec', 'input', 'batch', 'hook', 'deps', 'watch', 'keep', 'ix', 'fence',
  'size'}

local job = {id = id, state = 'blocked', deadline = '0'}
local values = redis.pcall('HMGET', key, unpack(FIELDS_HERE))
for n, field in ipairs(FIELDS_HERE) do job[field] = not values.err and values[n] or nil end
if not redis.call('ZSCORE', QUARANTINE, id) and (not job.quarantined or ARGV[5] ~= '') then return {'not_found'} end
job.priority, job.class, job.tenant, job.endpoint = parts_of(job.lane or '')
job.keep = tonumber(job.keep)
if job.hook and not string.match(job.hook, '^%S* .') then job.hook = nil end

local function fail()
  assert(job.tenant and job.input and OPEN_STATES[job.quarantined] and cjson.decode(job.spec))
  redis.call('HDEL', key, 'quarantined', 'run', 'progress', 'inline', 'stored', 'won', 'steps', 'deadline', 'start_by',
    'opt')
  -- `end_job` subtracts the job from the open ones, but a quarantined job is not counted there.
  count(ROOT .. ':open', 't:' .. job.tenant, 1)
  count(ROOT .. ':open', 'e:' .. job.tenant .. ':' .. job.endpoint, 1)
  end_job(job, 'failed', now, tonumber(ARGV[2]), 'fence', (tonumber(string.match(job.fence or '', '^%d+')) or 0) + 1,
    'error', ARGV[4])
end

local function delete()
  redis.call('DEL', key, events_key(id))
  for _, list in ipairs({':ended', ':leases', ':scheduled', ':deadlines'}) do redis.call('ZREM', ROOT .. list, id) end
  if job.tenant then
    give_back_memory(job.tenant, job.ix, job.size)
    redis.call('ZREM', ROOT .. ':dead:' .. job.tenant, id)
    if job.ix then redis.pcall('XDEL', ROOT .. ':index:' .. job.tenant, job.ix) end
  end
  if OPEN_STATES[job.quarantined] and job.batch then count(batch_key(job.batch), 'failed', 1) end
  if redis.call('EXISTS', dependents_key(id)) == 1 then
    redis.call('ZADD', ROOT .. ':settle', now, 'ended ' .. id)
    announce('settle')
  end
end

local fails = ARGV[5] == '' and pcall(fail)
if not fails then
  uncount(0)
  delete()
end
redis.call('ZREM', QUARANTINE, id)
redis.call('HDEL', WHY, id)
return {fails and 'failed' or 'deleted'}
