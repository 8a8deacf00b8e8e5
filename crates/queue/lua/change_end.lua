#!lua flags=allow-oom
-- change_end: moves an ended change to the log of its tenant and to the global log. Both are bounded by length and age.
-- KEYS  1 changes HASH | 2 log STREAM of its tenant | 3 global log STREAM
-- ARGV  1 id | 2 change (JSON) | 3 "open" = only if it is still open, "" = always | 4 max entries of a tenant |
--       5 max global entries | 6 max_age_ms
-- Reply 1 done | 0 another call has ended it
if ARGV[3] == 'open' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
local oldest = redis.call('TIME')[1] * 1000 - tonumber(ARGV[6])
for n, max in ipairs({ARGV[4], ARGV[5]}) do
  redis.call('XADD', KEYS[n + 1], 'MAXLEN', '~', max, '*', 'c', ARGV[2])
  redis.call('XTRIM', KEYS[n + 1], 'MINID', '~', string.format('%.0f', oldest))
end
-- Last, so that a change stays open if it could not be logged.
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
