#!lua flags=allow-oom
-- demand: returns the number of a requirement set. Equal sets have the same number; 0 is the empty set and is never
-- requested. Notes that the tenant uses the set, so that the set keeps its number (demand_free.lua).
-- KEYS  1 demands HASH (set JSON -> number) | 2 demands_of, without a tenant | 3 demand_users, without a number
-- ARGV  1 set JSON | 2 tenant | 3 max numbers | 4 max sets of a tenant | 5 "1" = the tenant deploys with it |
--       6 maximum age of the note that the tenant uses the set, ms |
--       7 a tenant with fewer sets than this is not limited by 3
-- Reply {"number", number} | {"tenant_full", number of its sets} | {"full", number of sets}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- A freed number keeps a placeholder in the HASH: a set that no worker meets and no tenant can request. The previous
-- release gives out HLEN + 1 as the next number, which must not be in use.
local function placeholder(number) return '{"regions":["\\u0000free ' .. number .. '"]}' end

local set, tenant = ARGV[1], ARGV[2]
local own = KEYS[2] .. ':' .. tenant
local number = redis.call('HGET', KEYS[1], set)
local is_known = number and redis.call('SISMEMBER', own, number) == 1
local sets = redis.call('SCARD', own)
-- A set with a number stays usable for what is deployed. Only a deploy, or a set without a number, is rejected.
if not is_known and sets >= tonumber(ARGV[4]) and (not number or ARGV[5] == '1') then
  return {'tenant_full', tostring(sets)}
end
if not number then
  local known, used = redis.call('HGETALL', KEYS[1]), 0
  for n = 1, #known, 2 do
    if known[n] == placeholder(known[n + 1]) then number = known[n + 1] else used = used + 1 end
  end
  if used >= tonumber(ARGV[3]) and sets >= tonumber(ARGV[7]) then return {'full', tostring(used)} end
  if number then redis.call('HDEL', KEYS[1], placeholder(number)) else number = tostring(#known / 2 + 1) end
  redis.call('HSET', KEYS[1], set, number)
end
local users = KEYS[3] .. ':' .. number
local seen = tonumber(redis.call('ZSCORE', users, tenant) or 0)
if not is_known or now - seen >= tonumber(ARGV[6]) then
  redis.call('SADD', own, number)
  redis.call('ZADD', users, now, tenant)
end
return {'number', number}
