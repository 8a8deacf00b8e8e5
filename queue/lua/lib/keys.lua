-- Spliced into every script after its first line, in the order of scripts.rs. No state of its own.
-- KEYS[1] is always the shard's root, for example {stoke:0}. Every other key is derived from it, so a script never leaves
-- the root's hash slot (see keys.rs, which tells what each key is).
local ROOT = KEYS[1]

local function job_key(id) return ROOT .. ':j:' .. id end
local function events_key(id) return ROOT .. ':e:' .. id end
local function dependents_key(id) return ROOT .. ':d:' .. id end
local function lane_key(lane) return ROOT .. ':q:' .. lane end
local function front_key(lane) return ROOT .. ':f:' .. lane end
local function lanes_key(priority, class, tenant) return ROOT .. ':lanes:' .. priority .. ':' .. class .. ':' .. tenant end
local function shelf_key(priority, class) return ROOT .. ':shelf:' .. priority .. ':' .. class end
local function fair_key(priority, class) return ROOT .. ':fair:' .. priority .. ':' .. class end
local function tags_key(priority) return ROOT .. ':tags:' .. priority end
local function held_key(gate) return ROOT .. ':held:' .. gate end
local function waiting_key(gate) return ROOT .. ':waiting:' .. gate end
local function batch_key(batch) return ROOT .. ':b:' .. batch end

-- The clock: Redis TIME in unix ms, unless a test hands in its own.
local MANUAL = false
local function clock(given)
  if given ~= '' then
    MANUAL = given
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Numbers as text: Lua would write a large one as 1.7e+12.
local function text(number) return string.format('%.0f', number) end

-- A lane is <priority>:<class>:<tenant>:<endpoint>.
local function parts_of(lane) return string.match(lane, '^(%d+):(%d+):([^:]*):(.*)$') end

local function fence_counter(fence) return tonumber(string.match(fence or '0', '^%d+')) end

-- A number in a hash that goes with its last unit, so that a drained queue leaves nothing behind.
local function count(key, field, by)
  local left = redis.call('HINCRBY', key, field, by)
  if left <= 0 then redis.call('HDEL', key, field) end
  return left
end

-- What the scripts decide by. The rest of the record is for people.
local FIELDS = {
  'state', 'lane', 'fence', 'attempt', 'worker', 'leased', 'queued', 'charged', 'watch', 'entry', 'failures', 'lost', 'oom',
  'crashes', 'crashed', 'ckey', 'hook', 'batch', 'keep', 'deadline', 'start_by', 'after',
}

-- One job's record by name; nil when there is none.
local function load(id)
  local values = redis.call('HMGET', job_key(id), unpack(FIELDS))
  if not values[1] then return nil end
  local job = {id = id}
  for n, field in ipairs(FIELDS) do job[field] = values[n] or nil end
  job.priority, job.class, job.tenant, job.endpoint = parts_of(job.lane)
  return job
end
