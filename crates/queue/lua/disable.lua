#!lua flags=allow-oom
-- disable: stops all new starts of a tenant until it is enabled again. Running jobs continue.
-- KEYS  1 root
-- ARGV  1 tenant | 2 "1" disabled | "0" enabled
-- Reply {"ok"}
--- @include "lib/keys", "lib/resume", "lib/scope_keys"
local scope = 't:' .. ARGV[1]
if ARGV[2] == '1' then
  redis.call('HSET', ROOT .. ':limits', disabled_field(scope), '1')
else
  redis.call('HDEL', ROOT .. ':limits', disabled_field(scope))
  resume(scope)
end
return {'ok'}
