-- What attempts have cost, by day.
--- @include "lib/counts", "lib/keys", "lib/text"

local DAY_MS = 86400000
local SPENT_MAX = 50000 -- fields of a day: machines by endpoints and batches
local SPENT_S = 401 * 86400 -- as long as bills are kept (autoscaler/src/bills.rs)
local spent = {} -- key of a day -> field -> what was spent, of this call
local spent_at = {} -- key of a day -> gate -> micro-dollars, of this call

-- What an attempt that has ended took: milliseconds of a slot, and what running and loading cost. An attempt that
-- went on over midnight is counted in each of its days by how long it ran there, and as a job in the last. Machines
-- are named last, since they are called what their operators like.
local function count_spent(job, now, instance, ...)
  local since, took = tonumber(job.leased), {...}
  if job.batch then count(batch_key(job.batch), 'spent', took[2] + took[3]) end
  local last, left = math.floor(now / DAY_MS), {tonumber(took[1]), tonumber(took[2]), tonumber(took[3])}
  local field = table.concat({job.tenant, job.endpoint, job.batch or '-', instance}, '|')
  for day = math.max(math.floor(since / DAY_MS), last - 400), last do
    local part = {day == last and 1 or 0, left[1], left[2], left[3]}
    if day < last then
      local share = (math.min(now, (day + 1) * DAY_MS) - math.max(since, day * DAY_MS)) / (now - since)
      for n = 1, 3 do
        part[n + 1] = math.floor(tonumber(took[n]) * share)
        left[n] = left[n] - part[n + 1]
      end
    end
    local key = ROOT .. ':spent:' .. day
    spent[key] = spent[key] or {}
    local before = spent[key][field] or {0, 0, 0, 0}
    for n = 1, 4 do before[n] = before[n] + part[n] end
    spent[key][field] = before
    local at = spent_at[key .. ':gates'] or {}
    spent_at[key .. ':gates'] = at
    for _, scope in ipairs({'t:' .. job.tenant, 'e:' .. job.tenant .. ':' .. job.endpoint}) do
      at[scope] = (at[scope] or 0) + part[3] + part[4]
    end
  end
end

-- The field of a day that counts for this one, and what is there. What has no room for another goes to all that its
-- tenant has had on the machine, and at last to all.
local function spent_before(key, field)
  local before = redis.call('HGET', key, field)
  if before or redis.call('HLEN', key) < SPENT_MAX then return field, before end
  local wider = string.gsub(field, '^([^|]*)|[^|]*|[^|]*|', '%1|*|-|')
  before = redis.call('HGET', key, wider)
  if before or redis.call('HLEN', key) < 2 * SPENT_MAX then return wider, before end
  return '*|*|-|*', redis.call('HGET', key, '*|*|-|*')
end

local function flush_spent()
  for key, fields in pairs(spent) do
    for named, by in pairs(fields) do
      local field, before = spent_before(key, named)
      local words, n = {}, 0
      for number in string.gmatch(before or '0 0 0 0', '%d+') do
        n = n + 1
        -- Words that a later release adds stay as they are.
        words[n] = by[n] and text(tonumber(number) + by[n]) or number
      end
      redis.call('HSET', key, field, table.concat(words, ' '))
      if not before then redis.call('EXPIRE', key, SPENT_S) end
    end
  end
  spent = {}
  for key, scopes in pairs(spent_at) do
    for scope, by in pairs(scopes) do
      if by > 0 and redis.call('HINCRBY', key, scope, text(by)) == by then
        -- What is new has its first value. Budgets are of a day, and an attempt may have begun on the one before.
        if redis.call('HLEN', key) > SPENT_MAX then redis.call('HDEL', key, scope) end
        redis.call('PEXPIRE', key, 3 * DAY_MS)
      end
    end
  end
  spent_at = {}
end

at_end('spent', flush_spent)
