#!lua flags=allow-oom
-- mark: writes a key, so that a WAIT on this connection covers everything before it. WAIT counts from the last write of
-- its own connection. A repeated submit writes nothing, and the job that it found may not have reached a replica yet.
-- Replicas receive all writes in one order.
-- KEYS  1 root
-- ARGV  1 anything
-- Reply {"ok"}
redis.call('SET', KEYS[1] .. ':mark', ARGV[1])
return {'ok'}
