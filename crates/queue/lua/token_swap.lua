#!lua
-- token_swap: replaces a token's record if it is still the one that the caller has read, so that a token is not used
-- twice.
-- KEYS  1 token STRING (JSON)
-- ARGV  1 hash as read | 2 next record | 3 expiry, unix ms ("" = never)
-- Reply 1 done | 0 the record has changed or is gone
local text = redis.call('GET', KEYS[1])
if not text or cjson.decode(text).hash ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
if ARGV[3] ~= '' then redis.call('PEXPIREAT', KEYS[1], ARGV[3]) end
return 1
