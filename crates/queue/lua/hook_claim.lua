#!lua
-- hook_claim: due deliveries -> claimed by the caller until the visibility timeout ends. If the caller is killed,
-- another replica can claim them after that.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 max | 3 visibility_ms | 4 claim
-- Reply {next_due_ms or "", then per delivery: {id, next_try_ms, event, subject, tenant, url, created, state, tries,
--       held, log, body, trace}}
--- @include "lib/attempt", "lib/clock", "lib/keys", "lib/text"
local now = clock(ARGV[1])
local hooks = ROOT .. ':hooks'
local reply = {''}
local function claim(id)
  local key = ROOT .. ':w:' .. id
  local record = redis.call('HMGET', key, 'event', 'subject', 'tenant', 'url', 'created', 'state', 'tries', 'held',
    'log', 'body', 'trace')
  if record[6] == 'pending' then
    local until_ms = text(now + ARGV[3])
    redis.call('ZADD', hooks, until_ms, id)
    redis.call('HSET', key, 'claim', ARGV[4])
    table.insert(record, 1, id)
    table.insert(record, 2, until_ms)
    reply[#reply + 1] = record
  else
    redis.call('ZREM', hooks, id)
  end
  return true
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', hooks, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))) do
  -- A record that cannot be read does not stop the other deliveries.
  if not attempt('delivery', claim, id) then redis.call('ZADD', hooks, text(now + ARGV[3]), id) end
end
local next_due = redis.call('ZRANGE', hooks, 0, 0, 'WITHSCORES')
if next_due[2] then reply[1] = text(tonumber(next_due[2])) end
return reply
