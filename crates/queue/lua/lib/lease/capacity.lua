-- How many jobs the worker may hold.
--- @include "lib/keys", "lib/lease/query"

-- What the worker holds, in parts of slots: a job whose model takes `share` of them at once in one slot takes so much
-- less of it. Beyond its slots it may hold a few jobs ahead: as many as it ends in a moment, and those whose ends and
-- results are on their way.
local SLOT = 1000000
local RUNS_MAX = 1000 -- leases that one heartbeat extends
local leased_parts, leased_jobs, is_checked = nil, 0, false

-- Adds up the worker's leases. `checks`: those that it does not hold any more are struck off first, which the release
-- before leaves there.
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

-- Whether the worker may hold one more job that takes this part of a slot.
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

-- Notes a job that the worker holds from now on.
local function note_lease(id, part)
  given[#given + 1], given[#given + 2] = id, part
  if leased_parts then leased_parts, leased_jobs = leased_parts + part, leased_jobs + 1 end
end
