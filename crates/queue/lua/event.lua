#!lua
-- event: stores messages of running jobs whose lease the caller still holds. Moves no job.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 max messages of a job | 3 max entries of outputs | 4 max bytes of outputs |
--       5 lifetime of outputs, ms | 6 memory limit, bytes, of a tenant without one of its own ("" = none) |
--       7 "1" if readers have received the outputs and need no signal |
--       then per event: id | fence | kind (progress, log, outputs, compressed_outputs) |
--       progress ("" or JSON); for outputs, the first index and their number |
--       message JSON; for outputs, an array of their JSON as texts, empty at the end of an attempt
-- Reply {"ok" | "stale_fence", ...} in order; {"uncompressed"} if nothing was stored because the script must read
-- outputs that are compressed
--- @include "lib/attempt", "lib/clock", "lib/job_keys", "lib/keys", "lib/lane_parts", "lib/memory"
--- @include "lib/over_memory", "lib/recount", "lib/streamed", "lib/text", "lib/watchers", "lib/webhooks"
local now, reply, notified = clock(ARGV[1]), {}, {}
-- Minimum time between two progress messages to a webhook. Handlers may report progress as often as they like. The
-- record's field `told` holds the time of the last one.
local PROGRESS_EVERY_MS = 1000
local ENTRY_BYTES = 100 -- bytes of a stream entry besides its text
-- Lower limits for a tenant that has used up its memory: messages of its jobs must not take that of others.
local EVENTS_OVER, OUTPUTS_BYTES_OVER = 50, 65536

-- Stores outputs in this server's memory only, neither in the append-only file nor on replicas. A restart or a failover
-- leaves a gap, which readers detect by the indexes. The caller turns replication on again. The ID of an entry is
-- `<attempt>-<end>`, so that an entry can be found by index. `before` is the bytes so far. `field` is `v`, or `z` if
-- `texts` is compressed.
local function store_outputs(id, tenant, run, index, count, field, texts, before)
  local key, max, time = outputs_key(id), tonumber(ARGV[4]), redis.call('TIME')
  if over_memory(tenant, #texts, ARGV[6], now) then max = OUTPUTS_BYTES_OVER end
  redis.set_repl(redis.REPL_NONE)
  -- `b` counts all bytes so far, so that two entries show how many bytes lie between them.
  local bytes = #texts + before
  local entry = run .. '-' .. text(index + math.max(count, 1))
  local added = redis.pcall('XADD', key, 'MAXLEN', '~', ARGV[3], entry,
    't', text(time[1] * 1000 + math.floor(time[2] / 1000)), 'i', text(index), 'b', text(bytes), field, texts)
  -- Any other answer means that the entry is a repetition.
  if type(added) == 'string' then
    while bytes > max do
      local first = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
      if first[1] == entry or bytes - tonumber(first[2][6]) + #first[2][8] <= max then break end
      redis.call('XDEL', key, first[1])
    end
    redis.call('HSET', job_key(id), 'output_bytes', text(bytes))
    redis.call('PEXPIRE', key, ARGV[5])
    -- A job keeps no more than `max` bytes, however much it writes. Like the outputs, the counter is in memory only.
    take_streamed(tenant, math.min(bytes, max) - math.min(before, max), now)
  end
end

-- Whether a replica of the previous release watches the job. Such a replica reads outputs among the other events. Its
-- name begins with `r_`.
local function is_watched_by_older(watch)
  for replica, until_ms in string.gmatch(watch or '', '(%S+)=(%d+)') do
    if string.sub(replica, 1, 2) == 'r_' and tonumber(until_ms) > now then return true end
  end
  return false
end

local function is_hooked(hook) return hook and string.find(hook, 'job.output', 1, true) end

local function store(id, fence, kind, extra, message)
  local job = redis.call('HMGET', job_key(id), 'state', 'fence', 'attempt', 'watch', 'hook', 'lane', 'told', 'ckey',
    'said', 'output_bytes')
  if job[1] ~= 'running' or job[2] ~= fence then return 'stale_fence' end
  local tenant, kept_bytes = select(3, parts_of(job[6])), tonumber(job[9] or 0) or 0
  local function add(message_json)
    local by = ENTRY_BYTES + #message_json
    local max = over_memory(tenant, by, ARGV[6], now) and EVENTS_OVER or tonumber(ARGV[2])
    local excess = redis.call('XLEN', events_key(id)) + 1 - max
    for _, first in ipairs(excess > 0 and redis.call('XRANGE', events_key(id), '-', '+', 'COUNT', excess) or {}) do
      by = by - ENTRY_BYTES - #first[2][4]
      redis.call('XDEL', events_key(id), first[1])
    end
    -- The previous release does not count what it adds, so there may be more to remove than was counted. The record's
    -- field `said` holds the count.
    by = math.max(by, -kept_bytes)
    kept_bytes = redis.call('HINCRBY', job_key(id), 'said', by)
    touch(id, job[1], job[6], job[8] or nil)
    take_memory(id, tenant, by)
    return redis.call('XADD', events_key(id), '*', 'a', job[3], 'm', message_json)
  end
  local function hook(name, entry)
    notify_webhook({id = id, hook = job[5], tenant = tenant}, 'job.' .. name, entry, now)
  end
  local is_output = kind == 'outputs' or kind == 'compressed_outputs'
  if is_output then
    local first, number = string.match(extra, '^(%d+) (%d+)$')
    local index, count, field = tonumber(first), tonumber(number), kind == 'outputs' and 'v' or 'z'
    local before = tonumber(job[10] or 0)
    local is_kept, why = pcall(store_outputs, id, tenant, job[3], index, count, field, message, before)
    redis.set_repl(redis.REPL_ALL)
    if not is_kept then error(why, 0) end
    if kind == 'outputs' and (is_hooked(job[5]) or is_watched_by_older(job[4])) then
      for at, value in ipairs(cjson.decode(message)) do
        local entry = add('{"event":"output","index":' .. text(index + at - 1) .. ',"value":' .. value .. '}')
        if is_hooked(job[5]) then hook('output', entry) end
      end
    end
  else
    local entry = add(message)
    if kind == 'progress' then redis.call('HSET', job_key(id), 'progress', extra) end
    if job[5] and kind == 'progress' and now - tonumber(job[7] or 0) >= PROGRESS_EVERY_MS then
      redis.call('HSET', job_key(id), 'told', text(now))
      hook(kind, entry)
    end
  end
  local needs_signal = not is_output or ARGV[7] == '' or is_watched_by_older(job[4])
  if job[4] and needs_signal and not notified[id] then
    notified[id] = true
    notify_watchers(id, job[4], now)
  end
  return 'ok'
end

for n = 8, #ARGV, 5 do
  if ARGV[n + 2] == 'compressed_outputs' then
    -- `store` reports a record that cannot be read.
    local job = redis.pcall('HMGET', job_key(ARGV[n]), 'watch', 'hook')
    if is_hooked(job[2]) or is_watched_by_older(job[1]) then return {'uncompressed'} end
  end
end
for n = 8, #ARGV, 5 do
  -- A message that cannot be stored is lost; the job continues.
  reply[#reply + 1] = attempt('event', store, unpack(ARGV, n, n + 4)) or 'stale_fence'
end
return reply
