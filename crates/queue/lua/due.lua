#!lua flags=allow-oom
-- due: what there is to settle, claimed for `claim_ms`: jobs that ended while others waited for them, and blocked jobs that
-- have nothing left to wait for. What is not settled in that time is given out again.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 most | 3 claim_ms | 4... members whose claims go on; then nothing else is claimed
-- Reply {"ended <id>" | "ready <id>", ...}
--- @include "lib/clock", "lib/keys"
local now = clock(ARGV[1])
local found = {unpack(ARGV, 4)}
if #found == 0 then found = redis.call('ZRANGEBYSCORE', ROOT .. ':settle', '-inf', now, 'LIMIT', 0, ARGV[2]) end
-- What has been settled meanwhile is not to come back.
for _, member in ipairs(found) do redis.call('ZADD', ROOT .. ':settle', 'XX', now + tonumber(ARGV[3]), member) end
return found
