#!lua
-- rent: records an instance before it is requested, if no other leader has been elected since the caller's term and the
-- limits allow it. All instances that may still cost something count, at the higher of the charged and the agreed
-- price. An instance that is being destroyed counts until it is seen to be gone.
-- KEYS  1 lead HASH | 2 machines HASH (id -> record JSON) | 3 rents ZSET (id -> time of the request, unix ms)
-- ARGV  1 term | 2 id | 3 record | 4 its price, micro-dollars per hour | 5 max instances |
--       6 max usd_micros_per_hour | 7 max rents in the window | 8 window_ms | 9 now_ms ("" = Redis TIME)
-- Reply {"ok", ""} | {"stale", ""} | {"machines", number of instances} | {"spend", usd_micros_per_hour of all} |
--       {"rents", number in the window}
if redis.call('HGET', KEYS[1], 'term') ~= ARGV[1] then return {'stale', ''} end
local id, price, now = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[9])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local instances, spend = 0, 0
local known = redis.call('HGETALL', KEYS[2])
for n = 1, #known, 2 do
  local instance = cjson.decode(known[n + 1])
  local costs = math.max(instance.usd_micros_per_hour, instance.agreed_usd_micros_per_hour or 0)
  if known[n] == id then
    -- The instance itself, stopped or requested before.
  elseif instance.wanted == 'stopped' and instance.is_done then
    spend = spend + instance.stopped_usd_micros_per_hour
  elseif instance.wanted ~= 'gone' or costs > 0 then
    instances, spend = instances + 1, spend + costs
  end
end
if instances + 1 > tonumber(ARGV[5]) then return {'machines', tostring(instances)} end
if price > 0 then
  if spend + price > tonumber(ARGV[6]) then return {'spend', string.format('%.0f', spend)} end
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - tonumber(ARGV[8]))
  local rents = redis.call('ZCARD', KEYS[3])
  if rents >= tonumber(ARGV[7]) then return {'rents', tostring(rents)} end
  redis.call('ZADD', KEYS[3], now, id)
end
redis.call('HSET', KEYS[2], id, ARGV[3])
return {'ok', ''}
