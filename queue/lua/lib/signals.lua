-- Wakes one parked pull that can take a job of this class: the smallest card that fits. A replica that is gone has no
-- subscriber; its waiters are dropped and the next one is tried.
local function wake(class)
  for _ = 1, 100 do
    local found = redis.call('ZRANGEBYSCORE', ROOT .. ':parked', class, '+inf', 'LIMIT', 0, 1)
    if #found == 0 then return false end
    redis.call('ZREM', ROOT .. ':parked', found[1])
    local replica, waiter = string.match(found[1], '^(.*)/(%d+)$')
    if redis.call('PUBLISH', ROOT .. ':signal:' .. replica, 'wake ' .. waiter) > 0 then return true end
  end
  return false
end

-- Tells every replica that watches this job. `watch` is "<replica>=<until_ms> ...", nil when nobody does.
local function notify(id, watch, now)
  if not watch then return end
  for replica, until_ms in string.gmatch(watch, '(%S+)=(%d+)') do
    if tonumber(until_ms) > now then
      redis.call('PUBLISH', ROOT .. ':signal:' .. replica, 'job ' .. id)
    end
  end
end

-- `watch` with this replica in it for `watch_ms` from now, without those whose time is over.
local function watched_by(watch, replica, watch_ms, now)
  local kept = {replica .. '=' .. text(now + watch_ms)}
  for other, until_ms in string.gmatch(watch, '(%S+)=(%d+)') do
    if other ~= replica and tonumber(until_ms) > now then kept[#kept + 1] = other .. '=' .. until_ms end
  end
  return table.concat(kept, ' ')
end

-- Tells every replica that there is work which any of them may do.
local function announce(work) redis.call('PUBLISH', ROOT .. ':signal:all', 'work ' .. work) end
