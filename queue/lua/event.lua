#!lua
-- event: keeps what a running job said, if its teller still holds the lease. Moves no job.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 most kept | then per event: id | fence | kind (progress, log, output) |
--       progress ("" or JSON) | message JSON
-- Reply {"ok" | "stale_fence", ...} in order
local now, reply, told = clock(ARGV[1]), {}, {}
for n = 3, #ARGV, 5 do
  local id, kind = ARGV[n], ARGV[n + 2]
  local job = redis.call('HMGET', job_key(id), 'state', 'fence', 'attempt', 'watch', 'hook', 'lane', 'told')
  if job[1] == 'running' and job[2] == ARGV[n + 1] then
    local entry = redis.call('XADD', events_key(id), 'MAXLEN', '~', ARGV[2], '*', 'a', job[3], 'm', ARGV[n + 4])
    if ARGV[n + 3] ~= '' then redis.call('HSET', job_key(id), 'progress', ARGV[n + 3]) end
    if job[5] and kind ~= 'log' and (kind == 'output' or now - tonumber(job[7] or 0) >= PROGRESS_EVERY_MS) then
      if kind == 'progress' then redis.call('HSET', job_key(id), 'told', text(now)) end
      tell({id = id, hook = job[5], tenant = select(3, parts_of(job[6]))}, 'job.' .. kind, entry, now)
    end
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
