-- Counts of the recovery sweep. The sweep (recover.lua) counts all open jobs again. `:recount` holds its position
-- (`:tenant`, and `:at`, an entry of that tenant's index) and the jobs counted so far, by "<open|running|ready> <scope
-- or lane>". A script that moves a job behind that position updates these counts, so that they are right at every
-- moment.
--- @include "lib/counts", "lib/keys", "lib/lane_parts", "lib/scope_keys", "lib/states"

local RECOUNT = ROOT .. ':recount'
local recount_tenant, recount_at -- read once a call; false if no sweep is in progress
local touched = {} -- ID -> the job before this call, while a sweep is in progress

local function is_recounting()
  if recount_tenant == nil then recount_tenant, recount_at = unpack(redis.call('HMGET', RECOUNT, ':tenant', ':at')) end
  return recount_tenant
end

-- The bytes that a record was counted with (`size`); 0 for records of the previous release, which does not count them.
local function size_of(id) return tonumber(redis.call('HGET', job_key(id), 'size') or 0) or 0 end

-- Notes a job before it moves. A new job has no state yet.
local function touch(id, state, lane, concurrency_key)
  if not is_recounting() or touched[id] then return end
  touched[id] = {state = state, lane = lane, concurrency_key = concurrency_key, size = size_of(id)}
end

-- Compares bytes, like ZRANGE BYLEX. Lua's own order of strings depends on the locale.
local function is_before(one, other)
  for n = 1, math.min(#one, #other) do
    local a, b = string.byte(one, n), string.byte(other, n)
    if a ~= b then return a < b end
  end
  return #one < #other
end

local function is_recounted(tenant, ix)
  if tenant ~= recount_tenant then return is_before(tenant, recount_tenant) end
  local ms, seq = string.match(ix, '^(%d+)%-(%d+)$')
  local at_ms, at_seq = string.match(recount_at, '^(%d+)%-(%d+)$')
  if not ms or not at_ms then return false end
  if ms ~= at_ms then return tonumber(ms) < tonumber(at_ms) end
  return tonumber(seq) <= tonumber(at_seq)
end

-- Adds a job, in this state, to the counts of the sweep.
local function recount(state, lane, concurrency_key, by)
  if not OPEN_STATES[state] then return end
  local _, _, tenant, endpoint = parts_of(lane)
  local scopes = {'t:' .. tenant, 'e:' .. tenant .. ':' .. endpoint}
  for _, scope in ipairs(scopes) do count(RECOUNT, 'open ' .. scope, by) end
  if state == 'running' then
    if concurrency_key then scopes[3] = key_scope(tenant, concurrency_key) end
    for _, scope in ipairs(scopes) do count(RECOUNT, 'running ' .. scope, by) end
  elseif state == 'queued' then
    count(RECOUNT, 'ready ' .. lane, by)
  end
end

local function flush_touched()
  for id, before in pairs(touched) do
    local after, tenant = redis.call('HMGET', job_key(id), 'ix', 'state', 'lane', 'ckey', 'size'),
      select(3, parts_of(before.lane))
    if after[1] and is_recounted(tenant, after[1]) then
      count(RECOUNT, 'bytes t:' .. tenant, (tonumber(after[5]) or 0) - before.size)
      recount(before.state, before.lane, before.concurrency_key, -1)
      recount(after[2], after[3], after[4], 1)
    end
  end
  touched = {}
end

at_end('count again', flush_touched)
