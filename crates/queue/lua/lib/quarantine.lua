-- Jobs that no script can move, and what they counted for.
--- @include "lib/clock", "lib/counts", "lib/freed", "lib/keys", "lib/lane_parts", "lib/recount"
--- @include "lib/scope_keys", "lib/set_aside", "lib/states"

-- Takes a job that no script can move out of everything that would come back to it, and out of all counts. Its record
-- stays, without `state`: every script, also of the release before, takes that for no job. `quarantined` keeps the
-- state it was in (`state`, where the caller knows better than the record). quarantine.lua puts it back or ends it.
local function quarantine(id, state, why)
  local key, now = job_key(id), asked_at or clock('')
  set_aside(id, why)
  local record = redis.pcall('HMGET', key, 'state', 'lane', 'ckey', 'batch', 'fence')
  -- It is no hash, or was quarantined before.
  if record.err or not record[1] then return end
  local was = state or loaded and loaded.id == id and loaded.state or record[1]
  if parts_of(record[2] or '') then touch(id, was, record[2], record[3]) end
  redis.call('HSET', key, 'quarantined', was)
  redis.call('HDEL', key, 'state')
  -- Whoever runs it has lost it.
  if was == 'running' then
    redis.call('HSET', key, 'fence', (tonumber(string.match(record[5] or '', '^%d+')) or 0) + 1)
  end
  local _, _, tenant, endpoint = parts_of(record[2] or '')
  if not OPEN_STATES[was] then return end
  -- The script that could not end it may have got so far.
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
    -- Whoever waits for the key is let on by the next `promote`.
    redis.call('ZADD', ROOT .. ':holds', now, scope)
  end
end
