#!lua flags=allow-oom
-- lease: queued -> running, for up to `want` jobs from the shelves within reach; or the waiter is parked, in the same step.
-- Most urgent priority first, then the class and the tenant whose turn it is by fair share, then a tenant's lanes in turn, then a
-- lane's front before its end. What the worker has loaded goes first, unless whoever's turn it is has waited for `warm_preference_ms`, and needs
-- no room that is not taken already: it goes also where its class is out of reach, as far as the loaded model takes more. Work that has waited for `age_after_ms` and was passed over PASSED_MAX times goes before more
-- urgent work once, so that nothing starves.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 worker_id | 3 want | 4 reach_gib | 5 lease_ms | 6 nonce | 7 waiter ("" = do not park) |
--       8 age_after_ms | 9 rank (0 to 999999: of waiters with the same reach the lowest is woken) | 10 warm_preference_ms |
--       11 the lanes of what it has loaded, without their priority, each with how many jobs more it takes:
--          "<class>:<tenant>:<endpoint>*<jobs> ..." |
--       12 the class that it has made room for: nothing else is leased ("" = all within reach) |
--       13 bytes of specs and inputs after which no further job is added, so that one call holds neither Redis nor its reader for long |
--       14 slots of the worker: it holds no more than they run and a few ahead ("" = no bound) | 15 parts of slots that its leases on other
--       shards take
--       reach_gib: for each set of demands that the worker meets its largest card, "<demands>:<GiB> ..."; the waiter: as wake() knows it
-- Reply {"ok" | "again" | "full", then per lease: id, lane, spec, input, attempt, fence, queued_ms, behind}; "again": much was in the way,
--       call once more; "full": the worker holds as many as it may, and is not parked; behind: jobs that the lane has left, as far as its
--       limits let them start
--- @include "lib/counts", "lib/keys", "lib/lane_parts", "lib/lease/choose", "lib/lease/query"
--- @include "lib/lease/serve", "lib/lease/virtual_times", "lib/room", "lib/text", "lib/waiter_keys", "lib/wake"
local WARM_MS = 60000 -- a waiter that lasts parks again sooner
local LEASE_PARTS = 8 -- of each lease in the reply
local IN_THE_WAY = 100 -- entries and lanes a call may clear that give no lease
local RUNS_TTL_MS = 7 * 86400000

while taken < want and cleared < IN_THE_WAY and bytes < bytes_max and not is_full do
  local priority, class, margin, most, lane = choose()
  if not priority then break end
  local had = taken
  serve(priority, class, margin, most, lane)
  return_earlier_jobs()
  if lane then takes[place_of(lane)] = takes[place_of(lane)] - (taken - had) end
  if taken > had then
    if priority > 0 then passed[priority] = 0 end
    for lower = priority + 1, 2 do
      passed[lower] = waits[lower] and passed[lower] + taken - had or 0
    end
  end
end
for priority = 0, 2 do write_virtual_times(priority) end
for priority = 1, 2 do
  if not waits[priority] then passed[priority] = 0 end
  if passed[priority] ~= before[priority] then
    if passed[priority] == 0 then
      redis.call('HDEL', ROOT .. ':passed', priority)
    else
      redis.call('HSET', ROOT .. ':passed', priority, math.min(passed[priority], 1000))
    end
  end
end

-- Jobs that a lane has left, as far as its limits let them start now.
local function jobs_behind(lane)
  local _, _, tenant, endpoint = parts_of(lane)
  local most = math.min(room('t:' .. tenant, now), (room('e:' .. tenant .. ':' .. endpoint, now)))
  return text(math.max(0, math.min(most, counted(ROOT .. ':ready', lane))))
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
  -- The wake that brought this worker here may have stood for more jobs than it took: pass it on, if only for want of room here.
  for place in pairs(takes) do takes[place] = math.huge end
  local _, more, _, _, lane = choose()
  if more then wake(more, lane) end
end
if taken > 0 then
  return reply
elseif is_full then
  reply[1] = 'full'
elseif cleared >= IN_THE_WAY then
  reply[1] = 'again'
elseif waiter ~= '' then
  for requirement_set, gib in pairs(capability) do redis.call('ZADD', parked_key(requirement_set), gib + rank / 1000000, waiter) end
  for _, place in ipairs(warm) do
    redis.call('ZADD', warm_key(place), rank, waiter)
    redis.call('PEXPIRE', warm_key(place), WARM_MS)
  end
end
return reply
