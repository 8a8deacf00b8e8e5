#!lua flags=allow-oom
-- quarantine: removes a job whose record the caller cannot read from all lists and counters (lib/quarantine.lua). Does
-- nothing if the job is gone.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 id | 3 reason
-- Reply {"ok"}
--- @include "lib/attempt", "lib/clock", "lib/keys", "lib/quarantine"
--- @include "lib/resume" for the gates that a quarantined job frees
clock(ARGV[1])
if redis.call('EXISTS', job_key(ARGV[2])) == 1 then quarantine(ARGV[2], nil, string.sub(ARGV[3], 1, WHY_MAX)) end
return {'ok'}
