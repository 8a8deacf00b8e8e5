-- Costs of attempts, by day.
--- @include "lib/counts", "lib/keys", "lib/text"

local DAY_MS = 86400000
local SPENT_MAX = 50000 -- fields of a day: instances, endpoints and batches
local SPENT_S = 401 * 86400 -- as long as bills are kept (autoscaler/src/bills.rs)
local TOKENS = {'prompt_tokens', 'cached_tokens', 'completion_tokens'}
local spent = {} -- costs of this call: key of a day -> field -> numbers
local spent_at = {} -- costs of this call: key of a day -> scope -> micro-dollars

-- Counts what an ended attempt took: slot time in ms, and the costs of running and loading in micro-dollars. An attempt
-- that ran past midnight is divided among its days by time; as a job it counts on the last day. The instance is the
-- last part of the field, because operators choose the names of instances freely. `tokens` are those of `TOKENS`, if
-- the attempt ended with a result that has them. They count on the last day too.
local function count_spent(job, now, instance, tokens, ...)
  local since, took = tonumber(job.leased), {...}
  if job.batch then
    count(batch_key(job.batch), 'spent', took[2] + took[3])
    for n, name in ipairs(tokens and TOKENS or {}) do count(batch_key(job.batch), name, tokens[n]) end
  end
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
    for n, by in ipairs(day == last and tokens or {}) do before[4 + n] = (before[4 + n] or 0) + by end
    spent[key][field] = before
    local at = spent_at[key .. ':gates'] or {}
    spent_at[key .. ':gates'] = at
    for _, scope in ipairs({'t:' .. job.tenant, 'e:' .. job.tenant .. ':' .. job.endpoint}) do
      at[scope] = (at[scope] or 0) + part[3] + part[4]
    end
  end
end

-- The field of a day to add to, and its value. If a day has no room for another field, the costs go to the tenant's
-- total on that instance, and finally to the total of all.
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
        -- Keeps words that a later release adds.
        words[n] = by[n] and text(tonumber(number) + by[n]) or number
      end
      -- A field has no numbers of tokens until the first job that has them.
      for new = n + 1, #by do words[new] = text(by[new]) end
      redis.call('HSET', key, field, table.concat(words, ' '))
      if not before then redis.call('EXPIRE', key, SPENT_S) end
    end
  end
  spent = {}
  for key, scopes in pairs(spent_at) do
    for scope, by in pairs(scopes) do
      if by > 0 and redis.call('HINCRBY', key, scope, text(by)) == by then
        -- The result equals the amount only if the field is new. Three days, because budgets apply to a day and an
        -- attempt may have begun on the day before.
        if redis.call('HLEN', key) > SPENT_MAX then redis.call('HDEL', key, scope) end
        redis.call('PEXPIRE', key, 3 * DAY_MS)
      end
    end
  end
  spent_at = {}
end

at_end('spent', flush_spent)
