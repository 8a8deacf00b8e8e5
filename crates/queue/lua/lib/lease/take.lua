-- How the jobs of a lane become running attempts.
--- @include "lib/counts", "lib/fences", "lib/flow", "lib/guard", "lib/ids", "lib/key_queue", "lib/keys"
--- @include "lib/lease/capacity", "lib/lease/key_order", "lib/lease/query", "lib/recount", "lib/scope_keys"
--- @include "lib/text", "lib/watchers", "lib/webhooks"

-- By priority: a job that has waited longer counts as started late.
local LATE_MS = {['0'] = 30000, ['1'] = 300000, ['2'] = 3600000}
local started = {} -- IDs of the jobs of this call that had to start by some time, and have no deadline
local bounded = {} -- deadline, ID, ... of those that have one

-- From its start on, only its deadline ends a job.
local function flush_started()
  if #started > 0 then redis.call('ZREM', ROOT .. ':deadlines', unpack(started)) end
  if #bounded > 0 then redis.call('ZADD', ROOT .. ':deadlines', unpack(bounded)) end
  started, bounded = {}, {}
end

at_end(false, flush_started)

-- The names in `opt` without `start_by`, nil if there is no other.
local function without_start_by(opt)
  local names = string.gsub(' ' .. opt .. ' ', ' start_by ', ' ')
  return string.match(names, '^ (.*%S) $')
end

-- Leases one job. An entry whose record is gone or points elsewhere is skipped, but still removed. Returns whether the
-- job was leased, and whether its entry stays because the worker has no capacity left.
local function take(entry, id, lane, tenant, charged)
  local key = job_key(id)
  local job = redis.call('HMGET', key, 'state', 'ix', 'spec', 'input', 'attempt', 'fence', 'watch', 'opt', 'entry')
  if job[1] ~= 'queued' or (job[9] or job[2]) ~= entry then return false end
  if not job[3] or not job[4] then error('its spec or its input is missing', 0) end
  local part = math.ceil(SLOT / math.max(1, tonumber(string.match(job[3], '^{"share":(%d+)') or 1)))
  if not may_lease(part) then return false, true end
  local concurrency_key, start_by, deadline, hook, batch
  if job[8] then
    concurrency_key, start_by, deadline, hook, batch =
      unpack(redis.call('HMGET', key, 'ckey', 'start_by', 'deadline', 'hook', 'batch'))
  end
  touch(id, 'queued', lane, concurrency_key)
  -- A job past its time is skipped. The next run of `expire` ends it.
  if tonumber(start_by or math.huge) <= now or tonumber(deadline or math.huge) <= now then return false end
  if concurrency_key then
    local scope = key_scope(tenant, concurrency_key)
    if counted(ROOT .. ':running', scope) >= key_max(concurrency_key) or is_behind(lane, scope, job[2]) then
      set_aside_for_key(id, lane, scope, job[2])
      return false
    end
    leave_key_queue(id, lane, scope)
    count(ROOT .. ':running', scope, 1)
  end
  local attempt, fence = (tonumber(job[5]) or 0) + 1, (fence_counter(job[6]) + 1) .. '.' .. nonce
  local queued = math.max(0, now - tonumber(string.match(entry, '%d+')))
  local record = {'state', 'running', 'attempt', attempt, 'fence', fence, 'run',
    -- Exactly four words: the previous release cannot read a job with a fifth one.
    worker .. ' ' .. text(now) .. ' ' .. text(queued) .. ' ' .. charged}
  local gone = {job[9] and 'entry' or nil}
  if start_by then
    gone[#gone + 1] = 'start_by'
    local rest = without_start_by(job[8] or '')
    if rest then
      record[#record + 1] = 'opt'
      record[#record + 1] = rest
    else
      gone[#gone + 1] = 'opt'
    end
  end
  redis.call('HSET', key, unpack(record))
  note_lease(id, part)
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  if hook then notify_webhook({id = id, hook = hook, tenant = tenant}, 'job.started', attempt, now) end
  if batch then count(batch_key(batch), 'running', 1) end
  notify_watchers(id, job[7], now)
  count(ROOT .. ':ready', lane, -1)
  if attempt == 1 then
    grow('s:' .. lane, 1)
    if queued > LATE_MS[string.sub(lane, 1, 1)] then grow('l:' .. lane, 1) end
  end
  if start_by and deadline then
    bounded[#bounded + 1] = deadline
    bounded[#bounded + 1] = id
  elseif start_by then
    started[#started + 1] = id
  end
  leases[#leases + 1] = expiry
  leases[#leases + 1] = id
  bytes = bytes + #job[3] + #job[4]
  -- The last part of a lease is filled in at the end of the call.
  for _, part in ipairs({id, lane, job[3], job[4], tostring(attempt), fence, text(queued), ''}) do
    reply[#reply + 1] = part
  end
  return true
end

-- Leases up to `max` jobs from a stream, fewer if the reply is full. Returns the number of leases and whether entries
-- are left. An empty stream is deleted, because it would keep its memory.
local function take_from(stream, mark, lane, tenant, max, charged)
  local entries = redis.call('XRANGE', stream, '-', '+', 'COUNT', max + 1)
  local gone, jobs, left = {}, 0, #entries > max
  for n = 1, math.min(max, #entries) do
    if bytes >= bytes_max then
      left = true
      break
    end
    local entry = entries[n]
    local id, done, is_taken, stays = id_of(entry[2][2])
    if id then done, is_taken, stays = guarded(id, 'queued', take, mark .. entry[1], id, lane, tenant, charged) end
    if stays then
      is_full, left = true, true
      break
    end
    gone[n] = entry[1]
    if done and is_taken then jobs = jobs + 1 end
  end
  cleared = cleared + #gone - jobs
  if not left and #gone > 0 then
    redis.call('DEL', stream)
  elseif #gone > 0 then
    redis.call('XDEL', stream, unpack(gone))
  end
  return jobs, left
end
