#!lua
-- event: keeps what a running job said, if its teller still holds the lease. Moves no job.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 most kept | then per event: id | fence | progress ("" or JSON) | message JSON
-- Reply {"ok" | "stale_fence", ...} in order
local now, reply, told = clock(ARGV[1]), {}, {}
for n = 3, #ARGV, 4 do
  local id = ARGV[n]
  local job = redis.call('HMGET', job_key(id), 'state', 'fence', 'attempt', 'watch')
  if job[1] == 'running' and job[2] == ARGV[n + 1] then
    redis.call('XADD', events_key(id), 'MAXLEN', '~', ARGV[2], '*', 'a', job[3], 'm', ARGV[n + 3])
    if ARGV[n + 2] ~= '' then redis.call('HSET', job_key(id), 'progress', ARGV[n + 2]) end
    if job[4] and not told[id] then
      told[id] = true
      notify(id, job[4], now)
    end
    reply[#reply + 1] = 'ok'
  else
    reply[#reply + 1] = 'stale_fence'
  end
end
return reply
