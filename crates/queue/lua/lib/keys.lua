-- Spliced into every script after its first line, in the order of scripts.rs. No state of its own.
-- KEYS[1] is always the shard's root, for example {stoke:0}. Every other key is derived from it, so a script never leaves
-- the root's hash slot (see keys.rs, which tells what each key is).
local ROOT = KEYS[1]

local function job_key(id) return ROOT .. ':j:' .. id end
local function events_key(id) return ROOT .. ':e:' .. id end
local function outputs_key(id) return ROOT .. ':o:' .. id end
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
local function runs_key(worker) return ROOT .. ':runs:' .. worker end
local function batch_key(batch) return ROOT .. ':b:' .. batch end
local function idempotency_key(tenant, hash) return ROOT .. ':i:' .. tenant .. ':' .. hash end
local function schedule_key_key(tenant, hash) return ROOT .. ':i:' .. tenant .. ':s:' .. hash end

-- What is kept under an idempotency key: "<request hash> <job id> ..." of a submit, "<schedule id> <request hash>" of a schedule, whose hash
-- has 64 digits. A schedule's tick is a submit whose request hash is the schedule's id.
local function is_of_schedule(held)
  local hash = string.match(held, '^sch_%x+ (%x+)$')
  return hash ~= nil and #hash == 64
end

-- The clock: Redis TIME in unix ms, unless a test hands in its own.
local MANUAL, asked_at = false, nil -- when this call asked last
local function clock(given)
  if given ~= '' then
    MANUAL = given
    asked_at = tonumber(given)
  else
    local time = redis.call('TIME')
    asked_at = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return asked_at
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
-- nil of what is no id.
local function id_of(raw) return raw and #raw == 16 and string.format(HEX, string.byte(raw, 1, 16)) or nil end
local function raw_of(id)
  return (string.gsub(id, '%x%x', function(digits) return string.char(tonumber(digits, 16)) end))
end

local function fence_counter(fence) return tonumber(string.match(fence or '0', '^%d+')) end
