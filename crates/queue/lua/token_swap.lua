#!lua
-- token_swap: puts a token's next record where the one is that the caller has seen: one that was used meanwhile is not used again.
-- KEYS  1 token STRING (JSON)
-- ARGV  1 hash seen | 2 next record | 3 when it ends, unix ms ("" = never)
-- Reply 1 done | 0 it is another one by now, or gone
local text = redis.call('GET', KEYS[1])
if not text or cjson.decode(text).hash ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
if ARGV[3] ~= '' then redis.call('PEXPIREAT', KEYS[1], ARGV[3]) end
return 1
