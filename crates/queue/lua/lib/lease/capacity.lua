-- How many jobs the worker may lease.
--- @include "lib/keys", "lib/lease/query"

-- Leases are counted in parts of slots: a job whose model runs `share` jobs at once in a slot takes 1/share of it. A
-- worker may lease a few jobs more than its slots run (`ahead`): the jobs that it finishes within a moment, and those
-- whose reports are in transit.
local SLOT = 1000000
local RUNS_MAX = 1000 -- leases that one heartbeat extends
local leased_parts, leased_jobs, is_checked = nil, 0, false

-- Adds up the worker's leases. With `checks`, it first removes leases that the worker no longer has; the previous
-- release leaves them behind.
local function count_leased(checks)
  local fields, gone = redis.call('HGETALL', runs_key(worker)), {}
  leased_parts, leased_jobs = tonumber(ARGV[15]), 0
  for n = 1, #fields, 2 do
    local job = checks and redis.call('HMGET', job_key(fields[n]), 'state', 'run')
    if job and (job[1] ~= 'running' or string.match(job[2] or '', '^%S+') ~= worker) then
      gone[#gone + 1] = fields[n]
    else
      leased_parts, leased_jobs = leased_parts + (tonumber(fields[n + 1]) or SLOT), leased_jobs + 1
    end
  end
  if #gone > 0 then redis.call('HDEL', runs_key(worker), unpack(gone)) end
  for n = 2, #given, 2 do leased_parts, leased_jobs = leased_parts + given[n], leased_jobs + 1 end
end

local function has_capacity(part)
  return leased_jobs < RUNS_MAX and leased_parts + part <= slots * SLOT + ahead * part
end

-- Whether the worker may lease one more job that takes this part of a slot.
local function may_lease(part)
  if not slots then return true end
  if not leased_parts then count_leased(false) end
  if has_capacity(part) then return true end
  if not is_checked then
    is_checked = true
    count_leased(true)
  end
  return has_capacity(part)
end

-- Notes a job that this call leases to the worker.
local function note_lease(id, part)
  given[#given + 1], given[#given + 2] = id, part
  if leased_parts then leased_parts, leased_jobs = leased_parts + part, leased_jobs + 1 end
end
