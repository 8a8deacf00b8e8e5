#!lua flags=allow-oom
-- extend: running -> running with a later expiry, for each lease that the caller still holds.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 lease_ms | then per lease: id | fence
-- Reply {"held" | "lost", ...} in order
--- @include "lib/attempt", "lib/clock", "lib/keys", "lib/set_aside"
local expiry, reply = clock(ARGV[1]) + tonumber(ARGV[2]), {}
local function extend(id, fence)
  local job = redis.call('HMGET', job_key(id), 'state', 'fence')
  if job[1] ~= 'running' or job[2] ~= fence then return 'lost' end
  redis.call('ZADD', ROOT .. ':leases', 'XX', expiry, id)
  return 'held'
end

for n = 3, #ARGV, 2 do
  local done, answer = pcall(extend, ARGV[n], ARGV[n + 1])
  -- `extend` reads only the fence and the state. If that fails, the key is not a hash, and the counters that include
  -- the job are unknown.
  if not done then set_aside(ARGV[n], why_of(answer)) end
  reply[#reply + 1] = done and answer or 'lost'
end
return reply
