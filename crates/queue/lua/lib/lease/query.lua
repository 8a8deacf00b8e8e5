-- The arguments of a call of `lease`, and what the call has leased so far.
--- @include "lib/capability", "lib/clock"

local now, worker, want, capability, reserved_class = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]),
  capability_of(ARGV[4]), tonumber(ARGV[12])
local expiry, nonce, waiter, age_after = now + tonumber(ARGV[5]), ARGV[6], ARGV[7], tonumber(ARGV[8])
local rank, warm_preference_ms, warm, warm_capacity, warm_of = tonumber(ARGV[9]), tonumber(ARGV[10]), {}, {}, {}
for suffix, jobs in string.gmatch(ARGV[11], '(%S+)%*(%d+)') do
  local class = tonumber(string.match(suffix, '^%d+'))
  warm_of[class] = warm_of[class] or {}
  for _, suffixes in ipairs({warm, warm_of[class]}) do suffixes[#suffixes + 1] = suffix end
  warm_capacity[suffix] = tonumber(jobs)
end

local reply, leases, taken, cleared, bytes, bytes_max = {'ok'}, {}, 0, 0, 0, tonumber(ARGV[13])
local slots, is_full, ahead = tonumber(ARGV[14]), false, 0
local given = {} -- job ID, part of a slot, ... of this call
