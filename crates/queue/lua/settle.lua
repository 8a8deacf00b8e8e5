#!lua flags=allow-oom
-- settle: decides a blocked job: blocked -> queued | scheduled | succeeded | failed, or it starts a step and stays
-- blocked. Applies only if the job was neither moved nor settled since the caller read it, so that one of two
-- concurrent decisions is applied.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 retention_ms | 3 id | 4 revision as read: "<fence>#<number of settlements>" |
--       5 new steps JSON ("" = unchanged) | 6 verb (queue, step, succeed, fail) | 7 new input ("" = unchanged) |
--       8 fail: error JSON; succeed: new result ("" = unchanged) |
--       9 step: the job, a MessagePack map as in submit: id, raw, tenant, lane, spec, input, fields
-- Reply {"ok" | "stale"}
--- @include "lib/clock", "lib/create", "lib/ends", "lib/enqueue", "lib/guard", "lib/job_keys"
--- @include "lib/key_queue", "lib/keys", "lib/lane_parts", "lib/load", "lib/memory", "lib/raw_ids"
--- @include "lib/scope_keys", "lib/wake", "lib/watchers"
--- @include "lib/resume" for the gates that a quarantined job frees
local now, retention_ms, id, verb = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[6]

local function settle()
  local key, job = job_key(id), load(ARGV[3])
  local revision = job and (job.fence or '') .. '#' .. (redis.call('HGET', key, 'settled') or 0)
  if job and job.state == 'blocked' and revision ~= ARGV[4] then return {'stale'} end
  redis.call('ZREM', ROOT .. ':settle', 'ready ' .. id)
  if not job or job.state ~= 'blocked' then return {'stale'} end

  redis.call('HINCRBY', key, 'settled', 1)
  if ARGV[5] ~= '' then redis.call('HSET', key, 'steps', ARGV[5]) end
  if ARGV[7] ~= '' then
    take_memory(id, job.tenant, #ARGV[7] - redis.call('HSTRLEN', key, 'input'))
    redis.call('HSET', key, 'input', ARGV[7])
  end
  if verb == 'queue' then
    redis.call('HDEL', key, 'waits')
    local run_after = tonumber(redis.call('HGET', key, 'run_after') or 0)
    if run_after > now then
      redis.call('HSET', key, 'state', 'scheduled')
      redis.call('ZADD', ROOT .. ':scheduled', run_after, id)
    else
      redis.call('HDEL', key, 'run_after')
      redis.call('HSET', key, 'state', 'queued', 'entry', enqueue(raw_of(id), job.lane, false))
      if job.ckey then join_key_queue(id, job.lane, key_scope(job.tenant, job.ckey)) end
      wake(job.class, job.lane)
    end
    notify_watchers(id, job.watch, now)
  elseif verb == 'step' then
    local new = cmsgpack.unpack(ARGV[9])
    new.run_after_ms, new.depends_on, new.endpoint = 0, {}, select(4, parts_of(new.lane))
    redis.call('HSET', key, 'waits', 1)
    redis.call('RPUSH', dependents_key(new.id), id .. ' completion')
    local class = create(new, now)
    redis.call('HSET', job_key(new.id), 'deps', 1)
    if class then wake(class, new.lane) end
    notify_watchers(id, job.watch, now)
  elseif verb == 'succeed' then
    if ARGV[8] ~= '' then
      take_memory(id, job.tenant, #ARGV[8])
      redis.call('HDEL', key, 'stored')
      redis.call('HSET', key, 'inline', ARGV[8])
    end
    end_job(job, 'succeeded', now, retention_ms)
  elseif verb == 'fail' then
    redis.call('HDEL', key, 'inline', 'stored')
    end_job(job, 'failed', now, retention_ms, 'error', ARGV[8])
  end
  return {'ok'}
end

local done, reply = guarded(id, nil, settle)
return done and reply or {'stale'}
