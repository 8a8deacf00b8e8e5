#!lua flags=allow-oom
-- sweep_claim: claims objects of deleted versions, to find out whether other versions name them, and to delete those
-- that none names. While an object is claimed, no version that names it can be added (deploy.lua), so the answer stays
-- true. A claim ends by itself if its holder died.
-- KEYS  1 orphans ZSET | 2 sweeps HASH of the tenant (object -> end of its claim, unix ms)
-- ARGV  1 tenant | 2 duration of a claim, ms | then objects
-- Reply {score of the claimed objects, object...}: those that are due and not claimed
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Differs from the score of an object that a later deletion notes again.
local score = string.format('%.0f', now - 1)
local reply = {score}
for n = 3, #ARGV do
  local member = ARGV[1] .. '/' .. ARGV[n]
  local due, claimed = redis.call('ZSCORE', KEYS[1], member), redis.call('HGET', KEYS[2], ARGV[n])
  if due and tonumber(due) <= now and tonumber(claimed or 0) <= now then
    redis.call('ZADD', KEYS[1], score, member)
    redis.call('HSET', KEYS[2], ARGV[n], string.format('%.0f', now + ARGV[2]))
    reply[#reply + 1] = ARGV[n]
  end
end
return reply
