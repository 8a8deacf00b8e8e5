-- Shared by every script: spliced in after the script's first line. No state of its own.
-- KEYS[1] is always the shard's root, for example {stoke:0}. Every other key is derived from it, so a script never leaves
-- the root's hash slot (see keys.rs, which spells the same keys).
local ROOT = KEYS[1]
local CLASSES = {192, 141, 96, 80, 48, 40, 32, 24, 16, 12, 10, 8, 6, 4, 0}
local KEPT_ATTEMPTS = 30 -- older entries of a job's history make room for newer ones

local function job_key(id) return ROOT .. ':j:' .. id end
local function events_key(id) return ROOT .. ':e:' .. id end
local function lane_key(lane) return ROOT .. ':q:' .. lane end
local function front_key(lane) return ROOT .. ':f:' .. lane end
local function shelf_key(priority, class) return ROOT .. ':shelf:' .. priority .. ':' .. class end

local function batch_key(batch) return ROOT .. ':b:' .. batch end

-- Numbers as text: Lua would write a large one as 1.7e+12.
local function text(number) return string.format('%.0f', number) end

-- The clock: Redis TIME in unix ms, unless a test hands in its own.
local function clock(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A lane is <priority>:<class>:<tenant>:<endpoint>; the first two name its shelf.
local function shelf_of(lane)
  local priority, class = string.match(lane, '^(%d+):(%d+):')
  return priority, tonumber(class)
end

local function fence_counter(fence) return tonumber(string.match(fence or '0', '^%d+')) end

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

-- Puts a job at the end of its lane, or at the front, and its lane on its shelf. Returns where it stands: the entry's id, after
-- an `f` when it is in the front stream.
local function enqueue(id, lane, at_front)
  local key = at_front and front_key(lane) or lane_key(lane)
  local entry = redis.call('XADD', key, '*', 'j', id)
  local priority, class = shelf_of(lane)
  local turn = redis.call('INCR', ROOT .. ':turn')
  redis.call('ZADD', shelf_key(priority, class), 'NX', turn, lane)
  return (at_front and 'f' or '') .. entry, class
end

-- Takes a lane without jobs off its shelf; an empty stream is deleted, since it would keep its memory.
local function tidy_lane(lane)
  local left = false
  for _, key in ipairs({front_key(lane), lane_key(lane)}) do
    if redis.call('XLEN', key) == 0 then redis.call('DEL', key) else left = true end
  end
  if not left then
    local priority, class = shelf_of(lane)
    redis.call('ZREM', shelf_key(priority, class), lane)
  end
  return left
end

-- Closes the running attempt in the job's history. `tail` is JSON that starts with a comma, or empty.
local function close_attempt(id, attempt, worker, fence, leased, queued, now, outcome, tail)
  redis.call('HSET', job_key(id), 'h' .. attempt,
    '{"attempt":' .. attempt .. ',"worker_id":"' .. worker .. '","fence":"' .. fence .. '","leased_ms":' .. leased
    .. ',"queued_ms":' .. queued .. ',"ended_ms":' .. now .. ',"outcome":"' .. outcome .. '"' .. tail .. '}')
  if tonumber(attempt) > KEPT_ATTEMPTS then
    redis.call('HDEL', job_key(id), 'h' .. (tonumber(attempt) - KEPT_ATTEMPTS))
  end
end

-- Tells every replica that there is work which any of them may do.
local function announce(work) redis.call('PUBLISH', ROOT .. ':signal:all', 'work ' .. work) end

-- The outbox: what webhooks tell of is written in the very script that commits it. The same `msg` again changes nothing.
local function outbox(now, msg, event, subject, tenant, url)
  local key, list = ROOT .. ':w:' .. msg, ROOT .. ':wl:' .. tenant
  if redis.call('EXISTS', key) == 1 then return end
  redis.call('HSET', key, 'event', event, 'subject', subject, 'tenant', tenant, 'url', url, 'created', text(now),
    'state', 'pending', 'tries', 0)
  redis.call('ZADD', ROOT .. ':hooks', now, msg)
  redis.call('ZADD', list, now, msg)
  redis.call('ZREMRANGEBYRANK', list, 0, -10001)
  announce('hooks')
end

-- A job of a batch has ended.
local function count_in_batch(batch, state, id)
  redis.call('HINCRBY', batch_key(batch), state, 1)
  redis.call('RPUSH', batch_key(batch) .. ':ended', id)
  announce('batches')
end

-- Ends a job for good: its record and its events live on for the retention time.
local function bury(id, retention_ms)
  local job = redis.call('HMGET', job_key(id), 'state', 'spec')
  local batch = string.match(job[2], '"batch":{"id":"(batch_%x+)"')
  if batch then count_in_batch(batch, job[1], id) end
  redis.call('HDEL', job_key(id), 'watch', 'entry', 'run_after', 'progress', 'worker', 'leased', 'queued')
  redis.call('PEXPIRE', job_key(id), retention_ms)
  redis.call('PEXPIRE', events_key(id), retention_ms)
end
