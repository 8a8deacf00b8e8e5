#!lua flags=allow-oom
-- forget: deletes ended jobs that the caller has archived: the record, its events and all list entries. Moves no job.
-- KEYS  1 root
-- ARGV  1.. id
-- Reply {number deleted}
--- @include "lib/give_back", "lib/guard", "lib/job_keys", "lib/keys", "lib/lane_parts"
--- @include "lib/resume" for the gates that a quarantined job frees
local TERMINAL = {succeeded = true, failed = true, cancelled = true, expired = true}
local forgotten, touched = 0, {}
local function forget(id)
  local job = redis.call('HMGET', job_key(id), 'state', 'ix', 'lane', 'quarantined', 'size')
  local tenant = job[3] and select(3, parts_of(job[3]))
  if job[4] then
    -- An operator has to decide first.
    redis.call('ZREM', ROOT .. ':ended', id)
  elseif not job[1] or not job[3] then
    -- An earlier sweep deleted it and its reply was lost, or a power failure left the rest of a record (record.rs).
    redis.call('DEL', job_key(id), events_key(id), outputs_key(id))
    redis.call('ZREM', ROOT .. ':ended', id)
  elseif not tenant then
    error('the field "lane" cannot be read', 0)
  elseif TERMINAL[job[1]] then
    give_back_memory(tenant, job[2], job[5])
    redis.call('DEL', job_key(id), events_key(id), outputs_key(id))
    redis.call('ZREM', ROOT .. ':ended', id)
    redis.call('ZREM', ROOT .. ':dead:' .. tenant, id)
    if job[2] then
      redis.call('XDEL', ROOT .. ':index:' .. tenant, job[2])
      touched[tenant] = true
    end
    forgotten = forgotten + 1
  end
end
for _, id in ipairs(ARGV) do guarded(id, nil, forget, id) end
-- An empty stream would keep its memory.
for tenant in pairs(touched) do
  local index = ROOT .. ':index:' .. tenant
  if redis.call('XLEN', index) == 0 then
    redis.call('DEL', index)
    redis.call('ZREM', ROOT .. ':tenants', tenant)
  end
end
return {forgotten}
