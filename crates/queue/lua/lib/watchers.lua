-- Replicas that watch a job.
--- @include "lib/keys", "lib/text"

-- Notifies every replica that watches this job. `watch` is "<replica>=<until_ms> ...", nil if there is none.
local function notify_watchers(id, watch, now)
  if not watch then return end
  for replica, until_ms in string.gmatch(watch, '(%S+)=(%d+)') do
    if tonumber(until_ms) > now then
      redis.call('PUBLISH', ROOT .. ':signal:' .. replica, 'job ' .. id)
    end
  end
end

-- Adds a replica to `watch` for `watch_ms` from now, and removes those whose time is over.
local function watched_by(watch, replica, watch_ms, now)
  local kept = {replica .. '=' .. text(now + watch_ms)}
  for other, until_ms in string.gmatch(watch, '(%S+)=(%d+)') do
    if other ~= replica and tonumber(until_ms) > now then kept[#kept + 1] = other .. '=' .. until_ms end
  end
  return table.concat(kept, ' ')
end
