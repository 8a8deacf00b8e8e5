#!lua
-- schedule_put: nothing -> a schedule. The same id again changes nothing.
-- KEYS  1 root
-- ARGV  1 id | 2 tenant | 3 spec JSON | 4 job JSON | 5 due_ms ("" = paused) | 6 max schedules of a tenant |
--       7 idempotency_key ("" = none) | 8 request_hash | 9 idempotency_ttl_ms | 10 now_ms ("" = Redis TIME) |
--       11 memory limit, bytes, of a tenant without one of its own ("" = none)
-- Reply "ok" | "full" | "memory <max> <used>" | "conflict" the key was used with another request | the id of the
--       schedule that the key has created
--- @include "lib/clock", "lib/extra_memory", "lib/idempotency", "lib/keys", "lib/memory", "lib/over_memory"
--- @include "lib/text"
local id, tenant, due = ARGV[1], ARGV[2], ARGV[5]
local key, list = ROOT .. ':schedule:' .. id, ROOT .. ':schedules:' .. tenant
if redis.call('EXISTS', key) == 1 then return 'ok' end
local known, shared = schedule_key_key(tenant, ARGV[7]), idempotency_key(tenant, ARGV[7])
if ARGV[7] ~= '' then
  local stored = redis.call('GET', known)
  if not stored then
    -- The previous release stores the keys of schedules with those of submits.
    stored = redis.call('GET', shared)
    if stored and not is_of_schedule(stored) then stored = nil end
  end
  local first, hash = string.match(stored or '', '^(%S+) (.*)$')
  if first then return hash == ARGV[8] and first or 'conflict' end
end
if redis.call('ZCARD', list) >= tonumber(ARGV[6]) then return 'full' end
local size = RECORD_BYTES + #ARGV[3] + #ARGV[4]
local max, used = over_memory(tenant, size, ARGV[11], clock(ARGV[10]))
if max then return 'memory ' .. text(max) .. ' ' .. text(used) end
redis.call('HSET', key, 'tenant', tenant, 'spec', ARGV[3], 'job', ARGV[4], 'ticks', 0, 'size', size)
take_extra_memory(tenant, size)
-- The guard that `submit` checks for every tick. It counts pauses and resumes, and is deleted with the schedule.
redis.call('HSET', ROOT .. ':b:' .. id, 'fed', 0)
-- All with one score: IDs sort by creation time.
redis.call('ZADD', list, 0, id)
if due == '' then
  redis.call('HSET', key, 'paused', 1)
else
  redis.call('HSET', key, 'due', due)
  redis.call('ZADD', ROOT .. ':schedules', due, id)
end
if ARGV[7] ~= '' then
  redis.call('SET', known, id .. ' ' .. ARGV[8], 'PX', ARGV[9])
  -- For replicas of the previous release, which read this key.
  redis.call('SET', shared, id .. ' ' .. ARGV[8], 'NX', 'PX', ARGV[9])
end
return 'ok'
