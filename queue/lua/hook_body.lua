#!lua
-- hook_body: fixes what a delivery sends. The first body stays, so that every try sends the same bytes.
-- KEYS  1 root
-- ARGV  1 id | 2 claim | 3 body
-- Reply {"ok", body} | {"stale_claim"}
local key = ROOT .. ':w:' .. ARGV[1]
local record = redis.call('HMGET', key, 'state', 'claim')
if record[1] ~= 'pending' or record[2] ~= ARGV[2] then return {'stale_claim'} end
redis.call('HSETNX', key, 'body', ARGV[3])
return {'ok', redis.call('HGET', key, 'body')}
