#!lua
-- hook_report: claimed -> pending again | delivered | exhausted | disabled, if the caller's claim is still the latest.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 max attempts logged | 3 retention after the end, ms |
--       4 the same for a delivery that is no longer listed | then per report: id | claim | "retry" | "put_off" |
--       "delivered" | "exhausted" | "disabled" | delay_ms | attempt JSON or ""
-- Reply {"ok" | "stale_claim", ...} in order
--- @include "lib/clock", "lib/extra_memory", "lib/keys", "lib/text"
local now, reply = clock(ARGV[1]), {}
-- Maximum size of an ended delivery's body, bytes. A replay builds a larger one again from its subject.
local BODY_KEPT = 4096
for n = 5, #ARGV, 5 do
  local id, claim, outcome, delay_ms, try = ARGV[n], ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], ARGV[n + 4]
  local key = ROOT .. ':w:' .. id
  local record = redis.call('HMGET', key, 'state', 'claim', 'log', 'tenant', 'size')
  if record[1] == 'pending' and record[2] == claim then
    redis.call('HDEL', key, 'claim')
    if outcome == 'put_off' then
      redis.call('HINCRBY', key, 'held', delay_ms)
    else
      -- One JSON object per line, so that no script has to parse it.
      local log = (record[3] and record[3] ~= '') and (record[3] .. '\n' .. try) or try
      local _, breaks = string.gsub(log, '\n', '')
      for _ = 1, breaks + 1 - ARGV[2] do log = string.sub(log, string.find(log, '\n', 1, true) + 1) end
      redis.call('HSET', key, 'log', log)
      redis.call('HINCRBY', key, 'tries', 1)
    end
    if outcome == 'put_off' or outcome == 'retry' then
      redis.call('ZADD', ROOT .. ':hooks', text(now + delay_ms), id)
    else
      redis.call('HSET', key, 'state', outcome)
      -- From here on, the length of the tenant's list bounds its memory.
      if record[5] then take_extra_memory(record[4], -(tonumber(record[5]) or 0)) end
      redis.call('HDEL', key, 'size')
      if redis.call('HSTRLEN', key, 'body') > BODY_KEPT then redis.call('HDEL', key, 'body', 'trace') end
      redis.call('ZREM', ROOT .. ':hooks', id)
      local listed = redis.call('ZSCORE', ROOT .. ':wl:' .. record[4], id)
      redis.call('PEXPIRE', key, listed and ARGV[3] or ARGV[4])
    end
    reply[#reply + 1] = 'ok'
  else
    reply[#reply + 1] = 'stale_claim'
  end
end
return reply
