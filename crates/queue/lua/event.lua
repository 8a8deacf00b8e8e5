#!lua
-- event: keeps what a running job said, if its teller still holds the lease. Moves no job.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 most kept | 3 outputs: most kept | 4 their bytes | 5 their life, ms |
--       6 bytes that a tenant may have which has no limit of its own ("" = any)
--       then per event: id | fence | kind (progress, log, outputs) | progress ("" or JSON); of outputs the first index |
--       message JSON; of outputs an array of their JSON as texts, empty at the end of an attempt
-- Reply {"ok" | "stale_fence", ...} in order
--- @include "lib/attempt", "lib/clock", "lib/job_keys", "lib/keys", "lib/lane_parts", "lib/memory"
--- @include "lib/over_memory", "lib/recount", "lib/streamed", "lib/text", "lib/watchers", "lib/webhooks"
local now, reply, notified = clock(ARGV[1]), {}, {}
local PROGRESS_EVERY_MS = 1000 -- a handler may tell of its progress as often as it likes; its receiver hears less
local ENTRY_BYTES = 100 -- what an entry of a stream takes beside its text
-- Of a tenant that has all the memory that it may: what its jobs say must not take that of the others.
local EVENTS_OVER, OUTPUTS_BYTES_OVER = 50, 65536

-- Outputs are kept in this server's memory alone, neither in its append-only file nor by its replicas: what a restart or a failover takes
-- is a gap for their readers, who find it by the indexes. The caller turns replication on again. The id of an entry is `<attempt>-<end>`, so that it is found by an index.
local function keep_outputs(id, tenant, run, index, count, texts)
  local key, most, time = outputs_key(id), tonumber(ARGV[4]), redis.call('TIME')
  if over_memory(tenant, #texts, ARGV[6], now) then most = OUTPUTS_BYTES_OVER end
  redis.set_repl(redis.REPL_NONE)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local before = last and tonumber(last[2][6]) or 0
  -- `b` counts all bytes so far, so that two entries tell what lies between them.
  local bytes = #texts + before
  local entry = run .. '-' .. text(index + math.max(count, 1))
  local added = redis.pcall('XADD', key, 'MAXLEN', '~', ARGV[3], entry, 't', text(time[1] * 1000 + math.floor(time[2] / 1000)),
    'i', text(index), 'b', text(bytes), 'v', texts)
  -- Anything else is a repetition.
  if type(added) == 'string' then
    while bytes > most do
      local first = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
      if first[1] == entry or bytes - tonumber(first[2][6]) + #first[2][8] <= most then break end
      redis.call('XDEL', key, first[1])
    end
    redis.call('PEXPIRE', key, ARGV[5])
    -- A job keeps no more than this, however much it says. The count is where the outputs are: in memory alone.
    take_streamed(tenant, math.min(bytes, most) - math.min(before, most), now)
  end
end

-- Whether a replica of the release before watches, which reads outputs among the other events. Its name begins with `r_`.
local function is_watched_by_older(watch)
  for replica, until_ms in string.gmatch(watch or '', '(%S+)=(%d+)') do
    if string.sub(replica, 1, 2) == 'r_' and tonumber(until_ms) > now then return true end
  end
  return false
end

local function keep(id, fence, kind, extra, message)
  local job = redis.call('HMGET', job_key(id), 'state', 'fence', 'attempt', 'watch', 'hook', 'lane', 'told', 'ckey', 'said')
  if job[1] ~= 'running' or job[2] ~= fence then return 'stale_fence' end
  local tenant, kept_bytes = select(3, parts_of(job[6])), tonumber(job[9] or 0) or 0
  local function add(message_json)
    local by = ENTRY_BYTES + #message_json
    local most = over_memory(tenant, by, ARGV[6], now) and EVENTS_OVER or tonumber(ARGV[2])
    local excess = redis.call('XLEN', events_key(id)) + 1 - most
    for _, first in ipairs(excess > 0 and redis.call('XRANGE', events_key(id), '-', '+', 'COUNT', excess) or {}) do
      by = by - ENTRY_BYTES - #first[2][4]
      redis.call('XDEL', events_key(id), first[1])
    end
    -- The release before does not count what it adds, so that there may be more to remove than was counted.
    by = math.max(by, -kept_bytes)
    kept_bytes = redis.call('HINCRBY', job_key(id), 'said', by)
    touch(id, job[1], job[6], job[8] or nil)
    take_memory(id, tenant, by)
    return redis.call('XADD', events_key(id), '*', 'a', job[3], 'm', message_json)
  end
  local function hook(name, entry)
    notify_webhook({id = id, hook = job[5], tenant = tenant}, 'job.' .. name, entry, now)
  end
  if kind == 'outputs' then
    local texts, index = cjson.decode(message), tonumber(extra)
    local is_kept, why = pcall(keep_outputs, id, tenant, job[3], index, #texts, message)
    redis.set_repl(redis.REPL_ALL)
    if not is_kept then error(why, 0) end
    local is_hooked = job[5] and string.find(job[5], 'job.output', 1, true)
    if is_hooked or is_watched_by_older(job[4]) then
      for at, value in ipairs(texts) do
        local entry = add('{"event":"output","index":' .. text(index + at - 1) .. ',"value":' .. value .. '}')
        if is_hooked then hook('output', entry) end
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
  if job[4] and not notified[id] then
    notified[id] = true
    notify_watchers(id, job[4], now)
  end
  return 'ok'
end

for n = 7, #ARGV, 5 do
  -- One that cannot be kept is lost; the job goes on.
  reply[#reply + 1] = attempt('event', keep, unpack(ARGV, n, n + 4)) or 'stale_fence'
end
return reply
