-- The queue of jobs with one concurrency key.
--- @include "lib/keys", "lib/scope_keys", "lib/text"

-- The time of a job's submit as a number that orders the jobs of a tenant, derived from its entry in the tenant's
-- index.
local function arrival(ix)
  local ms, seq = string.match(ix or '', '^(%d+)%-(%d+)$')
  return ms and tonumber(ms) * 2048 + math.min(tonumber(seq), 2047) or 0
end

-- Adds a job to the queue of its key. All queued jobs with a concurrency key are in it, in the order of submit: those
-- in lanes, and those set aside until the key is free (entry `k`).
local function join_key_queue(id, lane, scope)
  redis.call('ZADD', waiting_key(scope), text(arrival(redis.call('HGET', job_key(id), 'ix'))), id .. ' ' .. lane)
end

local function leave_key_queue(id, lane, scope) redis.call('ZREM', waiting_key(scope), id .. ' ' .. lane) end

local KEY_QUEUE_MAX = 100 -- members of a key queue that one call reads
