#!lua
-- hook_replay: delivered | exhausted | disabled -> pending, due now, with all attempts again. A pending delivery
-- becomes due now, unless an attempt is in progress.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 tenant | 3 id
-- Reply {"ok"} | {"not_found"}
--- @include "lib/announce", "lib/clock", "lib/extra_memory", "lib/keys", "lib/outbox", "lib/text"
local now, id = clock(ARGV[1]), ARGV[3]
local key = ROOT .. ':w:' .. id
local record = redis.call('HMGET', key, 'tenant', 'state', 'claim', 'url')
if record[1] ~= ARGV[2] then return {'not_found'} end
if record[2] ~= 'pending' then
  local size = MESSAGE_BYTES + #(record[4] or '') + redis.call('HSTRLEN', key, 'body')
  redis.call('HSET', key, 'state', 'pending', 'tries', 0, 'held', 0, 'size', size)
  take_extra_memory(record[1], size)
  redis.call('PERSIST', key)
end
if not record[3] then redis.call('ZADD', ROOT .. ':hooks', text(now), id) end
announce('hooks')
return {'ok'}
