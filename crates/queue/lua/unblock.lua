#!lua flags=allow-oom
-- unblock: resolves the dependencies on an ended job, at most `max` per call. A dependent job becomes ready to be
-- settled once its last dependency has ended, or one has not succeeded as required. Moves no job.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 max | 3 id
-- Reply {"done" | "more"}
--- @include "lib/clock", "lib/guard", "lib/job_keys", "lib/keys"
--- @include "lib/resume" for the gates that a quarantined job frees
local now, id = clock(ARGV[1]), ARGV[3]
local succeeded = redis.call('HGET', job_key(id), 'state') == 'succeeded'
local function resolve_dependency(waiting, on)
  if redis.call('HGET', job_key(waiting), 'state') ~= 'blocked' then return end
  local left = redis.call('HINCRBY', job_key(waiting), 'waits', -1)
  if left <= 0 or (on == 'success' and not succeeded) then
    redis.call('ZADD', ROOT .. ':settle', now, 'ready ' .. waiting)
  end
end

for _ = 1, tonumber(ARGV[2]) do
  local entry = redis.call('LPOP', dependents_key(id))
  if not entry then
    redis.call('ZREM', ROOT .. ':settle', 'ended ' .. id)
    return {'done'}
  end
  local waiting, on = string.match(entry, '^(%x+) (.*)$')
  guarded(waiting, nil, resolve_dependency, waiting, on)
end
return {'more'}
