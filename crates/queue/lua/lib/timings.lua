-- Durations of the parts of attempts, by endpoint, version and hour: histograms with buckets 9 % wide, which timings.rs
-- reads.
--- @include "lib/counts", "lib/keys", "lib/text"

local HOUR_MS = 3600000
local TIMINGS_MAX = 4000 -- fields of an hour: versions, parts and buckets
local TIMINGS_S = 49 * 3600
-- In the order of `attempt_tail` of record.rs.
local PARTS = {'env', 'boot', 'load', 'run', 'upload', 'warmup', 'weights'}
local timed = {} -- counts of this call: key -> field -> change

-- The bucket of a duration above 0 ms. Each doubling has eight buckets.
local function bucket_of(ms) return math.floor(math.log(ms) / math.log(2) * 8) end

-- Counts an ended attempt. A failed one counts only as failed, because it may have stopped at any point.
local function count_timing(job, now, succeeded, tail, usd_micros)
  -- The version is the first field of a spec (stored_spec.rs).
  local version = string.match(redis.call('HGET', job_key(job.id), 'spec') or '', '^{"version":(%d+)')
  if not version then return end
  local key = ROOT .. ':timings:' .. job.tenant .. ':' .. job.endpoint .. ':' .. math.floor(now / HOUR_MS)
  local fields = timed[key] or {}
  timed[key] = fields
  local function add(what, by)
    local field = version .. ':' .. what
    fields[field] = (fields[field] or 0) + by
  end
  add(succeeded and 'ok' or 'failed', 1)
  add('usd', usd_micros)
  if not succeeded then return end
  local function took(part, ms)
    if ms >= 1 then add(part .. ':' .. bucket_of(ms), 1) end
  end
  took('queue', tonumber(job.queued))
  took('total', tonumber(job.queued) + math.max(0, now - tonumber(job.leased)))
  local n = 0
  for ms in string.gmatch(string.match(tail, '^[%d,]*'), '%d+') do
    n = n + 1
    took(PARTS[n], tonumber(ms))
  end
end

-- A single HSET for each key: Redis writes every command again to the replicas and the append-only file.
local function flush_timings()
  for key, fields in pairs(timed) do
    local names, set, new = {}, {}, 0
    for field, by in pairs(fields) do
      if by > 0 then names[#names + 1] = field end
    end
    local before = redis.call('HMGET', key, unpack(names))
    for n = 1, #names do
      if not before[n] then new = new + 1 end
    end
    local is_full = new > 0 and redis.call('HLEN', key) + new > TIMINGS_MAX
    for n, field in ipairs(names) do
      if before[n] or not is_full then
        set[#set + 1] = field
        set[#set + 1] = text(tonumber(before[n] or 0) + fields[field])
      end
    end
    if #set > 0 then redis.call('HSET', key, unpack(set)) end
    if new > 0 and not is_full then redis.call('EXPIRE', key, TIMINGS_S) end
  end
  timed = {}
end

at_end('timings', flush_timings)
