#!lua flags=allow-oom
-- lease: queued -> running, for up to `want` jobs from the class queues within the worker's capability. If there is
-- none, the waiter is parked in the same step.
-- Jobs are ordered by priority, then by fair share among classes and tenants, then by the turn of a tenant's lanes. In
-- a lane, requeued entries go first.
-- Lanes of the worker's loaded models go first, unless the job that is due has waited for `warm_preference_ms`. They
-- need no further GPU memory, so they are also served outside the capability, as far as the loaded model takes more
-- jobs.
-- To prevent starvation, work that has waited for `age_after_ms` and was passed over PASSED_MAX times goes before more
-- urgent work once.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 worker_id | 3 want |
--       4 capability: the largest GPU for each requirement set that the worker meets, "<requirement set>:<GiB> ..." |
--       5 lease_ms | 6 nonce | 7 waiter, as wake() reads it ("" = do not park) | 8 age_after_ms |
--       9 rank (0 to 999999: of waiters with the same capability, the lowest is woken first) | 10 warm_preference_ms |
--       11 lanes of the loaded models, without priority, each with the number of jobs that it takes more:
--       "<class>:<tenant>:<endpoint>*<jobs> ..." |
--       12 the class that the worker has reserved room for: nothing else is leased ("" = none) |
--       13 bytes of specs and inputs after which no further job is added, to bound how long one call blocks Redis and
--       delays its reader |
--       14 slots of the worker: it leases what they run and a few more ("" = no bound) |
--       15 parts of slots that its leases on other shards take
-- Reply {"ok" | "again" | "full", then per lease: id, lane, spec, input, attempt, fence, queued_ms, behind}
--       "again": the call has only cleared obsolete entries; call again
--       "full": the worker has as many leases as it may and is not parked
--       behind: jobs left in the lane, as far as its limits let them start
--- @include "lib/counts", "lib/keys", "lib/lane_parts", "lib/lease/choose", "lib/lease/query"
--- @include "lib/lease/serve", "lib/lease/virtual_times", "lib/room", "lib/text", "lib/waiter_keys", "lib/wake"
local WARM_MS = 60000 -- a waiter that stays parks again before that
local LEASE_PARTS = 8 -- parts of each lease in the reply
-- Entries and lanes without a lease that one call may clear.
local CLEARED_MAX = 100
local RUNS_TTL_MS = 7 * 86400000

while taken < want and cleared < CLEARED_MAX and bytes < bytes_max and not is_full do
  local priority, class, margin, max, lane = choose()
  if not priority then break end
  local taken_before = taken
  serve(priority, class, margin, max, lane)
  return_earlier_jobs()
  if lane then warm_capacity[lane_suffix(lane)] = warm_capacity[lane_suffix(lane)] - (taken - taken_before) end
  if taken > taken_before then
    if priority > 0 then passed[priority] = 0 end
    for lower = priority + 1, 2 do
      passed[lower] = has_jobs[lower] and passed[lower] + taken - taken_before or 0
    end
  end
end
for priority = 0, 2 do write_virtual_times(priority) end
for priority = 1, 2 do
  if not has_jobs[priority] then passed[priority] = 0 end
  if passed[priority] ~= before[priority] then
    if passed[priority] == 0 then
      redis.call('HDEL', ROOT .. ':passed', priority)
    else
      redis.call('HSET', ROOT .. ':passed', priority, math.min(passed[priority], 1000))
    end
  end
end

-- The number of jobs left in a lane, as far as its limits let them start now.
local function jobs_behind(lane)
  local _, _, tenant, endpoint = parts_of(lane)
  local max = math.min(room('t:' .. tenant, now), (room('e:' .. tenant .. ':' .. endpoint, now)))
  return text(math.max(0, math.min(max, counted(ROOT .. ':ready', lane))))
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
  -- The wake-up that led to this call may have been for more jobs than it leased. It is passed on, even if only this
  -- worker lacks the room.
  for suffix in pairs(warm_capacity) do warm_capacity[suffix] = math.huge end
  local _, more, _, _, lane = choose()
  if more then wake(more, lane) end
end
if taken > 0 then
  return reply
elseif is_full then
  reply[1] = 'full'
elseif cleared >= CLEARED_MAX then
  reply[1] = 'again'
elseif waiter ~= '' then
  for requirement_set, gib in pairs(capability) do
    redis.call('ZADD', parked_key(requirement_set), gib + rank / 1000000, waiter)
  end
  for _, suffix in ipairs(warm) do
    redis.call('ZADD', warm_key(suffix), rank, waiter)
    redis.call('PEXPIRE', warm_key(suffix), WARM_MS)
  end
end
return reply
