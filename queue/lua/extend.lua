#!lua flags=allow-oom
-- extend: running -> running with a later end, for each lease that the caller still holds.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 lease_ms | then per lease: id | fence
-- Reply {"held" | "lost", ...} in order
local expiry, reply = clock(ARGV[1]) + tonumber(ARGV[2]), {}
for n = 3, #ARGV, 2 do
  local job = redis.call('HMGET', job_key(ARGV[n]), 'state', 'fence')
  if job[1] == 'running' and job[2] == ARGV[n + 1] then
    redis.call('ZADD', ROOT .. ':leases', 'XX', expiry, ARGV[n])
    reply[#reply + 1] = 'held'
  else
    reply[#reply + 1] = 'lost'
  end
end
return reply
