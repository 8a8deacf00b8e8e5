#!lua
-- batch_create: nothing -> validating, unless the idempotency key already has a batch.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 batch | 3 tenant | 4 spec | 5 input key ("" = not copied yet) |
--       6 deadline_ms ("" = none) | 7 webhook URL ("" = none) | 8 idempotency_key ("" = none) | 9 request_hash |
--       10 idempotency_ttl_ms | 11 max open batches | 12 max batches listed per tenant |
--       13 max open batches of a tenant | 14 a tenant with fewer open batches than this is not limited by 11
-- Reply {"ok", id} | {"repeat", id} the batch of the key | {"conflict"} | {"full"} | {"tenant_full"}
--- @include "lib/announce", "lib/clock", "lib/keys", "lib/text"
local now, id, tenant = clock(ARGV[1]), ARGV[2], ARGV[3]
local key, known, open = batch_key(id), ROOT .. ':i:' .. tenant .. ':b:' .. ARGV[8], ROOT .. ':batches'
if ARGV[8] ~= '' then
  local stored = redis.call('GET', known)
  if stored then
    local first, hash = string.match(stored, '^(%S+) (.*)$')
    if hash ~= ARGV[9] then return {'conflict'} end
    return {'repeat', first}
  end
end
if redis.call('EXISTS', key) == 1 then return {'ok', id} end
local own = redis.call('ZINTERCARD', 2, open, ROOT .. ':batches:' .. tenant, 'LIMIT', ARGV[13])
if own >= tonumber(ARGV[13]) then return {'tenant_full'} end
if own >= tonumber(ARGV[14]) and redis.call('ZCARD', open) >= tonumber(ARGV[11]) then return {'full'} end

redis.call('HSET', key, 'state', 'validating', 'tenant', tenant, 'spec', ARGV[4], 'created', text(now), 'total', 0,
  'invalid', 0, 'fed', 0, 'collected', 0)
if ARGV[5] ~= '' then redis.call('HSET', key, 'input', ARGV[5]) end
if ARGV[6] ~= '' then redis.call('HSET', key, 'deadline', ARGV[6]) end
if ARGV[7] ~= '' then redis.call('HSET', key, 'hook', ARGV[7]) end
redis.call('ZADD', open, now, id)
-- Ordered by name: IDs sort by creation time.
redis.call('ZADD', ROOT .. ':batches:' .. tenant, 0, id)
redis.call('ZREMRANGEBYRANK', ROOT .. ':batches:' .. tenant, 0, -ARGV[12] - 1)
if ARGV[8] ~= '' then redis.call('SET', known, id .. ' ' .. ARGV[9], 'PX', ARGV[10]) end
announce('batches')
return {'ok', id}
