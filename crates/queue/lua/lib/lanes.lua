-- Where ready jobs stand. A shelf (priority, class) holds tenants by their start tag; a tenant's lanes on it take turns; a lane
-- is two streams, the front being served first.
--
-- Fair sharing between the tenants of a shelf is start-time fair queueing (Goyal, Vin, Cheng 1996): a tenant is served at its
-- start tag, and each job moves the tag on by its cost over the tenant's weight. The cost is milliseconds of a card: expected
-- when the job starts, corrected when it stops. A tenant that comes back starts at the shelf's virtual time, so that it is
-- neither owed for its absence nor punished for having been alone.
-- In `:fair`, `:now` is the shelf's virtual time and every other field a tenant: no tenant's name has a colon.
-- The classes of one priority share in the same way, each weighing as much as it has tenants.
local EXPECTED_MS = 1000 -- of an endpoint that has never run

local opened = {} -- lanes that stand among their tenant's, as far as this call knows
local SMOOTHING = 0.2 -- weight of the newest run in an endpoint's expected cost
local runs = {} -- of this call: field of `:cost`, milliseconds, ...

local function expected_ms(tenant, endpoint)
  return tonumber(redis.call('HGET', ROOT .. ':cost', tenant .. ':' .. endpoint)) or EXPECTED_MS
end

-- What a run has taken of its slot: not what it waited for one inside its worker, behind whoever ran there; and of what it shared with
-- others, its part.
local function taken_ms(job, now) return math.max(0, now - tonumber(job.leased) - (job.waited or 0)) / (job.sharers or 1) end

-- What a run of this endpoint costs, for the next one that starts.
local function learn_cost(job, now)
  runs[#runs + 1] = job.tenant .. ':' .. job.endpoint
  runs[#runs + 1] = taken_ms(job, now)
end

local function flush_costs()
  if #runs == 0 then return end
  local fields, costs, set = {}, {}, {}
  for n = 1, #runs, 2 do
    if costs[runs[n]] == nil then
      costs[runs[n]] = false
      fields[#fields + 1] = runs[n]
    end
  end
  for n, before in ipairs(redis.call('HMGET', ROOT .. ':cost', unpack(fields))) do costs[fields[n]] = tonumber(before) end
  for n = 1, #runs, 2 do
    local before, took = costs[runs[n]] or runs[n + 1], runs[n + 1]
    costs[runs[n]] = math.max(before + (took - before) * SMOOTHING, 0.1)
  end
  for n, field in ipairs(fields) do
    set[2 * n - 1] = field
    set[2 * n] = string.format('%.1f', costs[field])
  end
  redis.call('HSET', ROOT .. ':cost', unpack(set))
  runs = {}
end

local charges = {} -- of this call, by shelf and tenant

-- Moves a tenant's tag by what it was charged in this call.
local function settle_charge(priority, class, tenant)
  local place = priority .. ':' .. class .. ':' .. tenant
  local by, shelf = charges[place], shelf_key(priority, class)
  if not by then return end
  charges[place] = nil
  if redis.call('ZSCORE', shelf, tenant) then
    redis.call('ZINCRBY', shelf, by, tenant)
  else
    local left_at = redis.call('HGET', fair_key(priority, class), tenant)
    if left_at then redis.call('HSET', fair_key(priority, class), tenant, (tonumber(left_at) or 0) + by) end
  end
end

-- Charges a tenant `cost` ms of a card.
local function charge(priority, class, tenant, cost)
  local place = priority .. ':' .. class .. ':' .. tenant
  charges[place] = (charges[place] or 0) + cost / limits('t:' .. tenant).weight
end

local function flush_charges()
  local places = {}
  for place in pairs(charges) do places[#places + 1] = place end
  for _, place in ipairs(places) do settle_charge(string.match(place, '^(%d+):(%d+):(.*)$')) end
end

-- Puts a tenant on a shelf, if it is not there.
local function stand(priority, class, tenant)
  local shelf = shelf_key(priority, class)
  if redis.call('ZSCORE', shelf, tenant) then return end
  settle_charge(priority, class, tenant)
  local fair = redis.call('HMGET', fair_key(priority, class), ':now', tenant)
  redis.call('ZADD', shelf, math.max(tonumber(fair[1]) or 0, tonumber(fair[2]) or 0), tenant)
  if fair[2] then redis.call('HDEL', fair_key(priority, class), tenant) end
  if redis.call('ZCARD', shelf) == 1 then
    local first = redis.call('ZRANGE', tags_key(priority), 0, 0, 'WITHSCORES')
    redis.call('ZADD', tags_key(priority), 'NX', first[2] or 0, class)
  end
end

-- Takes a tenant off a shelf. What it has had beyond the others is remembered while others stand there.
local function step_off(priority, class, tenant)
  settle_charge(priority, class, tenant)
  local shelf, fair = shelf_key(priority, class), fair_key(priority, class)
  local tag = redis.call('ZSCORE', shelf, tenant)
  if not tag then return end
  opened = {}
  redis.call('ZREM', shelf, tenant)
  if redis.call('ZCARD', shelf) == 0 then
    redis.call('ZREM', tags_key(priority), class)
    redis.call('DEL', fair)
  elseif tonumber(tag) > (tonumber(redis.call('HGET', fair, ':now')) or 0) then
    redis.call('HSET', fair, tenant, tag)
  end
end

-- Puts a lane back among its tenant's.
local function open_lane(lane)
  if opened[lane] then return end
  opened[lane] = true
  local priority, class, tenant = parts_of(lane)
  redis.call('ZADD', lanes_key(priority, class, tenant), 'NX', redis.call('INCR', ROOT .. ':turn'), lane)
  stand(priority, class, tenant)
end

-- A stream's entry carries the time since when the job is ready. A test's clock, or what is wanted, may stand behind the
-- stream's last entry.
local function append(stream, raw, wanted)
  for _, at in ipairs({wanted or '*', MANUAL and MANUAL .. '-*' or nil}) do
    local entry = at ~= '*' and redis.pcall('XADD', stream, at, 'j', raw)
    if type(entry) == 'string' then return entry end
  end
  return redis.call('XADD', stream, '*', 'j', raw)
end

-- Puts a job at the end of its lane, or at the front; there, if it can be, as entry `wanted`. Returns where it stands.
local function enqueue(raw, lane, at_front, wanted)
  local entry = append(at_front and front_key(lane) or lane_key(lane), raw, wanted)
  count(ROOT .. ':ready', lane, 1)
  -- One that goes to the front has been ready before.
  if not at_front then grow('a:' .. lane, 1) end
  open_lane(lane)
  return (at_front and 'f' or '') .. entry
end

-- Takes a lane without jobs away; an empty stream is deleted, since it would keep its memory.
local function tidy_lane(lane)
  local left = false
  for _, key in ipairs({front_key(lane), lane_key(lane)}) do
    if redis.call('XLEN', key) == 0 then redis.call('DEL', key) else left = true end
  end
  if left then return true end
  opened[lane] = nil
  local priority, class, tenant = parts_of(lane)
  local lanes = lanes_key(priority, class, tenant)
  redis.call('ZREM', lanes, lane)
  if redis.call('EXISTS', lanes) == 0 then step_off(priority, class, tenant) end
  return false
end

-- The lane that would be served next.
local function next_lane(priority, class)
  local tenant = redis.call('ZRANGE', shelf_key(priority, class), 0, 0)[1]
  return tenant and redis.call('ZRANGE', lanes_key(priority, class, tenant), 0, 0)[1]
end

-- The entry of that lane that would be served next, and the lane; nil when there is none.
local function next_entry(priority, class)
  local lane = next_lane(priority, class)
  for _, stream in ipairs(lane and {front_key(lane), lane_key(lane)} or {}) do
    local entry = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    if entry then return entry[1], lane end
  end
end

-- When a job was submitted, as a number that orders a tenant's jobs: from its entry in the tenant's index.
local function arrival(ix)
  local ms, seq = string.match(ix or '', '^(%d+)%-(%d+)$')
  return ms and tonumber(ms) * 2048 + math.min(tonumber(seq), 2047) or 0
end

-- Every queued job with a concurrency key is in its key's line, in the order of arrival: those in lanes, and those set aside (entry `k`).
local function line_up(id, lane, gate)
  redis.call('ZADD', waiting_key(gate), text(arrival(redis.call('HGET', job_key(id), 'ix'))), id .. ' ' .. lane)
end

local function leave_line(id, lane, gate) redis.call('ZREM', waiting_key(gate), id .. ' ' .. lane) end

-- Puts a job that was set aside back at the front of its lane.
local function call_forward(id, lane)
  count(ROOT .. ':ready', lane, -1)
  redis.call('HSET', job_key(id), 'entry', enqueue(raw_of(id), lane, true))
end

local LINE_MAX = 100 -- members of a line that are looked at

-- Jobs with a concurrency key may go on: of each lane as many as there are free places, in the order of arrival. Of each lane, since
-- one lane may be closed, or have no worker, for any time; `lease` keeps the order between lanes (lease.lua).
local function next_in_key(gate)
  local members = redis.call('ZRANGE', waiting_key(gate), 0, LINE_MAX - 1)
  if #members == 0 then redis.call('ZREM', ROOT .. ':holds', gate) end
  local running, in_lane, full = counted(ROOT .. ':running', gate), {}, {}
  local function look_at(member, id, lane)
    local job = redis.call('HMGET', job_key(id), 'state', 'entry', 'ckey')
    local before = in_lane[lane] or 0
    if job[1] ~= 'queued' then
      redis.call('ZREM', waiting_key(gate), member)
    elseif job[2] ~= 'k' then
      in_lane[lane] = before + 1
    elseif running + before < key_max(job[3]) then
      in_lane[lane] = before + 1
      call_forward(id, lane)
      wake(select(2, parts_of(lane)), lane)
    else
      full[lane] = true
    end
  end
  for _, member in ipairs(members) do
    local id, lane = string.match(member, '^(%x+) (.*)$')
    if not full[lane] then guarded(id, nil, look_at, member, id, lane) end
  end
end

-- Lets those held at a gate try again.
local function resume(gate)
  if string.sub(gate, 1, 2) == 'k:' then return next_in_key(gate) end
  local held = held_key(gate)
  local members = redis.call('ZRANGE', held, 0, 99)
  if #members == 0 then return end
  redis.call('ZREM', held, unpack(members))
  redis.call('ZREM', ROOT .. ':holds', gate)
  local tenant = string.match(gate, '^t:(.*)$')
  for _, member in ipairs(members) do
    if tenant then
      local priority, class = string.match(member, '^(%d+):(%d+)$')
      if redis.call('EXISTS', lanes_key(priority, class, tenant)) == 1 then
        stand(priority, class, tenant)
        wake(class)
      end
    elseif redis.call('EXISTS', lane_key(member), front_key(member)) > 0 then
      open_lane(member)
      wake(select(2, parts_of(member)), member)
    end
  end
end
