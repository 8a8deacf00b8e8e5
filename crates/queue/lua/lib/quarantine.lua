-- Jobs that no script can move, and the counters they are part of.
--- @include "lib/clock", "lib/counts", "lib/freed", "lib/keys", "lib/lane_parts", "lib/recount"
--- @include "lib/scope_keys", "lib/set_aside", "lib/states"

-- Removes a job that no script can move from all lists that would lead back to it, and from all counters. Its record
-- stays, but without `state`; every script, also of the previous release, treats that as no job. `quarantined` keeps
-- the former state: `state` if the caller passes it, else the record's. readmit.lua puts the job back, discard.lua ends
-- it.
local function quarantine(id, state, why)
  local key, now = job_key(id), asked_at or clock('')
  set_aside(id, why)
  local record = redis.pcall('HMGET', key, 'state', 'lane', 'ckey', 'batch', 'fence')
  -- The key is not a hash, or the job has been quarantined before.
  if record.err or not record[1] then return end
  local was = state or loaded and loaded.id == id and loaded.state or record[1]
  if parts_of(record[2] or '') then touch(id, was, record[2], record[3]) end
  redis.call('HSET', key, 'quarantined', was)
  redis.call('HDEL', key, 'state')
  -- A new fence ends the lease of the worker that runs it.
  if was == 'running' then
    redis.call('HSET', key, 'fence', (tonumber(string.match(record[5] or '', '^%d+')) or 0) + 1)
  end
  local _, _, tenant, endpoint = parts_of(record[2] or '')
  if not OPEN_STATES[was] then return end
  -- The script that failed may have written these fields already.
  redis.call('HDEL', key, 'ended', 'error')
  if not endpoint then return end
  redis.pcall('ZREM', ROOT .. ':dead:' .. tenant, id)
  for _, scope in ipairs({'t:' .. tenant, 'e:' .. tenant .. ':' .. endpoint}) do
    count(ROOT .. ':open', scope, -1)
    if was == 'running' then
      count(ROOT .. ':running', scope, -1)
      free(scope)
    end
  end
  if was == 'queued' then count(ROOT .. ':ready', record[2], -1) end
  if was == 'running' and record[4] then count(batch_key(record[4]), 'running', -1) end
  if record[3] and string.match(record[3], '^%d+:') then
    local scope = key_scope(tenant, record[3])
    if was == 'running' then count(ROOT .. ':running', scope, -1) end
    -- The next `promote` lets jobs start that wait for the key.
    redis.call('ZADD', ROOT .. ':holds', now, scope)
  end
end
