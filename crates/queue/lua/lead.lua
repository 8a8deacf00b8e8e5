#!lua flags=allow-oom
-- lead: makes the caller the leader, or renews its leadership, unless another one leads. Each new leader starts a new
-- term.
-- KEYS  1 lead HASH (holder, term, until_ms)
-- ARGV  1 holder | 2 ttl_ms (0 = resign)
-- Reply {"yes", term} | {"no", holder}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local current = redis.call('HMGET', KEYS[1], 'holder', 'term', 'until_ms')
local term = tonumber(current[2] or 0)
if current[1] ~= ARGV[1] then
  if tonumber(current[3] or 0) > now then return {'no', current[1]} end
  term = term + 1
end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'term', term, 'until_ms', string.format('%.0f', now + tonumber(ARGV[2])))
return {'yes', tostring(term)}
