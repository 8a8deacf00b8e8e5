#!lua flags=allow-oom
-- mark: writes something, whatever the calls before it wrote. WAIT counts from its connection's own last write: a repeat that found
-- its job there has written nothing, and what it found may not have reached a replica yet. All writes reach it in one order.
-- KEYS  1 root
-- ARGV  1 anything
-- Reply {"ok"}
redis.call('SET', KEYS[1] .. ':mark', ARGV[1])
return {'ok'}
