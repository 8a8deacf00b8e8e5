-- The line of jobs with one concurrency key.
--- @include "lib/keys", "lib/scope_keys", "lib/text"

-- When a job was submitted, as a number that orders a tenant's jobs: from its entry in the tenant's index.
local function arrival(ix)
  local ms, seq = string.match(ix or '', '^(%d+)%-(%d+)$')
  return ms and tonumber(ms) * 2048 + math.min(tonumber(seq), 2047) or 0
end

-- Every queued job with a concurrency key is in its key's line, in the order of arrival: those in lanes, and those
-- set aside (entry `k`).
local function join_key_queue(id, lane, scope)
  redis.call('ZADD', waiting_key(scope), text(arrival(redis.call('HGET', job_key(id), 'ix'))), id .. ' ' .. lane)
end

local function leave_key_queue(id, lane, scope) redis.call('ZREM', waiting_key(scope), id .. ' ' .. lane) end

local KEY_QUEUE_MAX = 100 -- members of a line that are looked at
