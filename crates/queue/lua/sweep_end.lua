#!lua flags=allow-oom
-- sweep_end: ends the claims of sweep_claim. An object that a version names is no orphan any more; neither is one that
-- was deleted, unless another deletion noted it meanwhile.
-- KEYS  1 orphans ZSET | 2 sweeps HASH of the tenant (object -> end of its claim; "swept" -> number of deletions)
-- ARGV  1 tenant | 2 score of the claimed objects | 3 "1" = some were deleted | then objects
-- Reply {"ok"}
for n = 4, #ARGV do
  local member = ARGV[1] .. '/' .. ARGV[n]
  redis.call('HDEL', KEYS[2], ARGV[n])
  if tonumber(redis.call('ZSCORE', KEYS[1], member) or 0) == tonumber(ARGV[2]) then
    redis.call('ZREM', KEYS[1], member)
  end
end
if ARGV[3] == '1' then redis.call('HINCRBY', KEYS[2], 'swept', 1) end
return {'ok'}
