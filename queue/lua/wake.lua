#!lua flags=allow-oom
-- wake: hands a wake that met no waiter to another parked pull that could use it. Moves no job.
-- KEYS  1 root
-- ARGV  none
-- Reply {"ok"}
for priority = 0, 2 do
  for _, class in ipairs(CLASSES) do
    if redis.call('ZCARD', shelf_key(priority, class)) > 0 and wake(class) then return {'ok'} end
  end
end
return {'ok'}
