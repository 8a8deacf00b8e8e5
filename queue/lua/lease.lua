#!lua flags=allow-oom
-- lease: queued -> running, for up to `want` jobs from the shelves within reach; or the waiter is parked, in the same step.
-- Most urgent priority first, then the largest class, then lanes in turn, then a lane's front before its end.
-- KEYS  1 root
-- ARGV  1 now_ms ("" = Redis TIME) | 2 worker_id | 3 want | 4 reach_gib | 5 lease_ms | 6 nonce | 7 waiter ("" = do not park)
-- Reply {id, spec, input, attempt, fence, ...} five per lease, empty when there was nothing
local now, worker, want, reach = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local expiry, nonce, waiter = now + tonumber(ARGV[5]), ARGV[6], ARGV[7]
local reply, leases, taken = {}, {}, 0

-- One job: from its entry to a running attempt. A record that is gone or not queued is skipped; its entry goes all the same.
local function take(entry, id)
  local key = job_key(id)
  local job = redis.call('HMGET', key, 'state', 'spec', 'input', 'attempt', 'fence', 'watch', 'entry')
  if job[1] ~= 'queued' or job[7] ~= entry then return end
  local attempt, fence = (tonumber(job[4]) or 0) + 1, (fence_counter(job[5]) + 1) .. '.' .. nonce
  local queued = math.max(0, now - tonumber(string.match(entry, '%d+')))
  redis.call('HSET', key, 'state', 'running', 'attempt', attempt, 'fence', fence, 'worker', worker, 'leased', now,
    'queued', queued)
  redis.call('HDEL', key, 'entry')
  notify(id, job[6], now)
  leases[#leases + 1] = expiry
  leases[#leases + 1] = id
  for _, part in ipairs({id, job[2], job[3], tostring(attempt), fence}) do reply[#reply + 1] = part end
  taken = taken + 1
end

local function take_from(stream, mark, most)
  local entries = redis.call('XRANGE', stream, '-', '+', 'COUNT', most)
  if #entries == 0 then return end
  local gone = {}
  for n, entry in ipairs(entries) do
    gone[n] = entry[1]
    take(mark .. entry[1], entry[2][2])
  end
  redis.call('XDEL', stream, unpack(gone))
end

-- Whether a shelf within reach still has a lane after `want` was met.
local more
for priority = 0, 2 do
  for _, class in ipairs(CLASSES) do
    if class <= reach and not more then
      local shelf = shelf_key(priority, class)
      -- Bounded: each round takes at least one entry or removes a lane; ghosts are at most the entries of cancelled jobs.
      for _ = 1, 100 do
        local lanes = redis.call('ZCARD', shelf)
        if lanes == 0 then break end
        if taken >= want then more = class break end
        local lane = redis.call('ZRANGE', shelf, 0, 0)[1]
        local share = math.ceil((want - taken) / lanes)
        local before = taken
        take_from(front_key(lane), 'f', share)
        share = share - (taken - before)
        if share > 0 then take_from(lane_key(lane), '', share) end
        if tidy_lane(lane) and lanes > 1 then
          redis.call('ZADD', shelf, redis.call('INCR', ROOT .. ':turn'), lane)
        end
      end
    end
  end
end

if taken > 0 then
  redis.call('ZADD', ROOT .. ':leases', unpack(leases))
  -- The wake that brought this worker here may have stood for more jobs than it took: pass it on.
  if more then wake(more) end
elseif waiter ~= '' then
  redis.call('ZADD', ROOT .. ':parked', reach, waiter)
end
return reply
