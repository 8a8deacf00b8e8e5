#!lua
-- secret_swap: puts a secret's new record where the old one still is: one that was set meanwhile is not overwritten.
-- KEYS  1 secrets HASH (name -> JSON)
-- ARGV  1 name | 2 old record | 3 new record
-- Reply 1 done | 0 it is another one by now
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
