#!lua
-- secret_swap: replaces a secret's record if it is still the old one, so that a value set in the meantime is not
-- overwritten.
-- KEYS  1 secrets HASH (name -> JSON)
-- ARGV  1 name | 2 old record | 3 new record
-- Reply 1 done | 0 the record has changed
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
