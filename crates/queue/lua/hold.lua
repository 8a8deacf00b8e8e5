#!lua flags=allow-oom
-- hold: finds a class whose next job has waited too long although this worker's GPUs could take it if they were not
-- full. The worker then reserves room for the class. One worker at a time is asked per class. Moves no job.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 worker_id | 3 capability now |
--       4 capability with empty GPUs, both "<requirement set>:<GiB> ..." | 5 reserve_after_ms |
--       6 reserve_for_ms: no other worker is asked for this time
-- Reply {the class, "" = none}
--- @include "lib/capability", "lib/clock", "lib/ids", "lib/keys", "lib/lane_keys", "lib/next_entry", "lib/text"
local now, reserve_after_ms, reserve_for_ms = clock(ARGV[1]), tonumber(ARGV[5]), tonumber(ARGV[6])
local free_capability, full_capability = capability_of(ARGV[3]), capability_of(ARGV[4])

-- Since when the same job has been the next one, also if workers without room have leased and released it meanwhile.
-- The age of the job would not do: in a long queue all jobs are old, however fast it moves.
local function head_since(priority, class)
  local head = id_of((select(2, next_entry(priority, class))))
  if not head then return now end
  local key = ROOT .. ':head:' .. priority .. ':' .. class
  local since, before = string.match(redis.call('GET', key) or '', '^(%d+) (.*)$')
  if before ~= head then since = text(now) end
  redis.call('SET', key, since .. ' ' .. head, 'PX', reserve_after_ms + reserve_for_ms)
  return tonumber(since)
end

for priority = 0, 2 do
  for _, class in ipairs(redis.call('ZRANGE', class_starts_key(priority), 0, -1)) do
    if not is_within(free_capability, class) and is_within(full_capability, class)
      and now - head_since(priority, class) >= reserve_after_ms
      and redis.call('SET', ROOT .. ':hold:' .. class, ARGV[2], 'NX', 'PX', reserve_for_ms) then
      return {class}
    end
  end
end
return {''}
