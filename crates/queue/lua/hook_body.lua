#!lua
-- hook_body: fixes the body and the trace context of a delivery. The first ones stay, so that every attempt sends the
-- same bytes.
-- KEYS  1 root
-- ARGV  1 id | 2 claim | 3 body | 4 traceparent ("" = none)
-- Reply {"ok", body, traceparent} | {"stale_claim"}
--- @include "lib/extra_memory", "lib/keys"
local key = ROOT .. ':w:' .. ARGV[1]
local record = redis.call('HMGET', key, 'state', 'claim', 'tenant', 'size')
if record[1] ~= 'pending' or record[2] ~= ARGV[2] then return {'stale_claim'} end
if redis.call('HSETNX', key, 'body', ARGV[3]) == 1 then
  redis.call('HSET', key, 'trace', ARGV[4])
  if record[4] then
    redis.call('HINCRBY', key, 'size', #ARGV[3])
    take_extra_memory(record[3], #ARGV[3])
  end
end
local sent = redis.call('HMGET', key, 'body', 'trace')
return {'ok', sent[1], sent[2] or ''}
