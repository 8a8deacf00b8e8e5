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
local function parked_key(demands) return ROOT .. ':parked:' .. demands end
local function warm_key(place) return ROOT .. ':warm:' .. place end -- <class>:<tenant>:<endpoint>
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

-- A class is demands * 1000 + GiB (reach.rs).
local function parts_of_class(class) return math.floor(class / 1000), class % 1000 end

-- What a worker can take: by demands the largest class, GiB; from "<demands>:<GiB> ...".
local function reach_of(words)
  local reach = {}
  for demands, gib in string.gmatch(words, '(%d+):(%d+)') do reach[tonumber(demands)] = tonumber(gib) end
  return reach
end

local function is_within(reach, class)
  local demands, gib = parts_of_class(class)
  return gib <= (reach[demands] or -1)
end

-- Streams hold the 16 bytes of an id, everything else its 32 hexadecimal digits.
local HEX = string.rep('%02x', 16)
local function id_of(raw) return string.format(HEX, string.byte(raw, 1, 16)) end
local function raw_of(id)
  return (string.gsub(id, '%x%x', function(digits) return string.char(tonumber(digits, 16)) end))
end

local function fence_counter(fence) return tonumber(string.match(fence or '0', '^%d+')) end

-- One job's record, as far as the scripts decide by it; nil when there is none. The rest of it is for people.
-- `ix` is its entry in the tenant's index. `entry` says where it stands while it is queued: an entry of its lane, after an `f` of
-- the front, or `k` with those that wait for its key; without `entry` the lane's entry is that of the index.
-- `run` is "<worker> <leased> <queued> <charged>" while it runs; `opt` names the fields that only some jobs have: deadline,
-- start_by, keep, ckey, hook, batch, retry_of, after. Looking for a field that is not there is what costs most.
local function load(id)
  local key = job_key(id)
  local core = redis.call('HMGET', key, 'state', 'lane', 'fence', 'attempt', 'run', 'entry', 'watch', 'opt', 'deps')
  -- Without a lane it is what a power cut has left of a record (record.rs): nothing that could be moved.
  if not core[1] or not core[2] then return nil end
  local job = {
    id = id, state = core[1], lane = core[2], fence = core[3] or nil, attempt = core[4] or nil, entry = core[6] or nil,
    watch = core[7] or nil, deps = core[9] or nil,
  }
  if core[5] then job.worker, job.leased, job.queued, job.charged = string.match(core[5], '^(%S+) (%S+) (%S+) (%S+)$') end
  if core[8] then
    local names = {}
    for name in string.gmatch(core[8], '%S+') do names[#names + 1] = name end
    for n, value in ipairs(redis.call('HMGET', key, unpack(names))) do job[names[n]] = value or nil end
  end
  job.priority, job.class, job.tenant, job.endpoint = parts_of(job.lane)
  return job
end
