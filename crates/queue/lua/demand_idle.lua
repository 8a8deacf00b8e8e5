#!lua flags=allow-oom
-- demand_idle: lists the requirement sets that tenants have not used for a while. A set without a noted user, as the
-- previous release leaves it, counts as used by "*" from now on.
-- KEYS  1 demands HASH (set JSON -> number) | 2 demand_users, without a number
-- ARGV  1 minimum idle time, ms | 2 max uses in the reply
-- Reply {the time before which they were last used, unix ms, then per use: number, tenant}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known, max, cutoff = redis.call('HGETALL', KEYS[1]), tonumber(ARGV[2]), string.format('%.0f', now - ARGV[1])
local reply = {cutoff}
for n = 1, #known, 2 do
  local users = KEYS[2] .. ':' .. known[n + 1]
  -- A freed number (demand.lua) has no users.
  if string.find(known[n], '"\\u0000free ', 1, true) then
    redis.call('DEL', users)
  elseif redis.call('EXISTS', users) == 0 then
    redis.call('ZADD', users, now, '*')
  else
    local left = max - (#reply - 1) / 2
    for _, tenant in ipairs(left > 0 and redis.call('ZRANGEBYSCORE', users, '-inf', cutoff, 'LIMIT', 0, left) or {}) do
      reply[#reply + 1] = known[n + 1]
      reply[#reply + 1] = tenant
    end
  end
end
return reply
