-- Records of jobs, as scripts read them.
--- @include "lib/keys", "lib/lane_parts", "lib/recount", "lib/states"

-- Checks what the scripts rely on, before they change anything. Raises an error that names the field.
local function check_record(job)
  local function must(holds, field) if not holds then error('the field "' .. field .. '" cannot be read', 0) end end
  must(OPEN_STATES[job.state] or ENDED_STATES[job.state], 'state')
  must(job.endpoint, 'lane')
  must(not job.fence or tonumber(string.match(job.fence, '^%d+')), 'fence')
  if job.state == 'running' then
    must(tonumber(job.attempt), 'attempt')
    must(tonumber(job.leased) and tonumber(job.queued) and tonumber(job.charged), 'run')
  end
  must(not job.ckey or string.match(job.ckey, '^%d+:'), 'ckey')
  must(not job.hook or string.match(job.hook, '^%S* '), 'hook')
  must(not job.deadline or tonumber(job.deadline), 'deadline')
  must(not job.start_by or tonumber(job.start_by), 'start_by')
  must(not job.keep or tonumber(job.keep), 'keep')
end

-- Loads the fields of a job's record that scripts decide by; nil if there is no record.
-- `ix` is the job's entry in the tenant's index. `entry` is its place while queued: an entry of the lane, `f` and an
-- entry of the requeued ones, or `k` if it is set aside for its concurrency key. Without `entry`, the lane's entry has
-- the ID of `ix`. `run` is "<worker> <leased> <queued> <charged>" while running; a release may add a word only once the
-- previous release reads it. `opt` names the fields that only some jobs have: deadline, start_by, keep, ckey, hook,
-- batch, retry_of, after. A lease removes start_by. Only named fields are read, because looking up absent ones costs
-- the most.
local function load(id)
  local key = job_key(id)
  local core = redis.call('HMGET', key, 'state', 'lane', 'fence', 'attempt', 'run', 'entry', 'watch', 'opt', 'deps')
  -- A record without a lane is the rest that a power failure has left (record.rs); no script can move it. A record
  -- without a state may be in the quarantine.
  if not core[1] or not core[2] then return nil end
  local job = {
    id = id, state = core[1], lane = core[2], fence = core[3] or nil, attempt = core[4] or nil, entry = core[6] or nil,
    watch = core[7] or nil, deps = core[9] or nil,
  }
  loaded = job
  if core[5] then
    job.worker, job.leased, job.queued, job.charged = string.match(core[5], '^(%S+) (%S+) (%S+) (%S+)')
  end
  if core[8] then
    local names = {}
    for name in string.gmatch(core[8], '%S+') do names[#names + 1] = name end
    for n, value in ipairs(redis.call('HMGET', key, unpack(names))) do job[names[n]] = value or nil end
  end
  job.priority, job.class, job.tenant, job.endpoint = parts_of(job.lane)
  check_record(job)
  touch(id, job.state, job.lane, job.ckey)
  return job
end
