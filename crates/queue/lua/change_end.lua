#!lua flags=allow-oom
-- change_end: a change has ended: into the log of its tenant and into that of all, which keep a number and an age of them.
-- KEYS  1 changes HASH | 2 log STREAM of its tenant | 3 log STREAM of all
-- ARGV  1 id | 2 change (JSON) | 3 "open": only if it is open still, "" | 4 most of a tenant | 5 most of all | 6 max_age_ms
-- Reply 1 done | 0 somebody else has
if ARGV[3] == 'open' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
local oldest = redis.call('TIME')[1] * 1000 - tonumber(ARGV[6])
for n, most in ipairs({ARGV[4], ARGV[5]}) do
  redis.call('XADD', KEYS[n + 1], 'MAXLEN', '~', most, '*', 'c', ARGV[2])
  redis.call('XTRIM', KEYS[n + 1], 'MINID', '~', string.format('%.0f', oldest))
end
-- Last: what could not be written stays open.
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
