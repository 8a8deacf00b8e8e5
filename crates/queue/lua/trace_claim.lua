#!lua
-- trace_claim: announces that traces are exported, and claims due ones until the visibility timeout ends. If more are
-- waiting than allowed, those due for the longest time are dropped.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 max | 3 visibility_ms | 4 max waiting traces |
--       5 how long the announcement is valid, ms
-- Reply {number dropped, id ...}
--- @include "lib/clock", "lib/keys", "lib/text"
local now, traces = clock(ARGV[1]), ROOT .. ':traces'
redis.call('SET', ROOT .. ':tracing', '1', 'PX', ARGV[5])
local reply = {text(redis.call('ZREMRANGEBYRANK', traces, 0, -ARGV[4] - 1))}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', traces, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))) do
  redis.call('ZADD', traces, text(now + ARGV[3]), id)
  reply[#reply + 1] = id
end
return reply
