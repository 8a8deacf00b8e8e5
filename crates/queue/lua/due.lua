#!lua flags=allow-oom
-- due: claims what is due to be settled for `claim_ms`: ended jobs that others depend on, and blocked jobs whose
-- dependencies have ended. What is not settled within that time is claimed again.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 max | 3 claim_ms |
--       4... members whose claims to renew; then nothing else is claimed
-- Reply {"ended <id>" | "ready <id>", ...}
--- @include "lib/clock", "lib/keys"
local now = clock(ARGV[1])
local found = {unpack(ARGV, 4)}
if #found == 0 then found = redis.call('ZRANGEBYSCORE', ROOT .. ':settle', '-inf', now, 'LIMIT', 0, ARGV[2]) end
-- XX: a member that was settled in the meantime must not come back.
for _, member in ipairs(found) do redis.call('ZADD', ROOT .. ':settle', 'XX', now + tonumber(ARGV[3]), member) end
return found
