#!lua
-- feedback: counts a rating of a job's result. A rating counted before for the same job is subtracted.
-- KEYS  1 counters HASH of the tenant | 2 judged STRING of the job
-- ARGV  1 ttl_ms of the STRING | 2 prefix of the counters, <endpoint>:<version>: |
--       3 accepted ("1", "0", "" = not given) | 4 score ("" = not given) |
--       5 earlier feedback in the format of this script, in case the STRING is gone ("" = none)
-- Reply {"new" | "replaced"}
local function count(by, accepted, score)
  local function add(name, value)
    if value ~= 0 then redis.call('HINCRBY', KEYS[1], ARGV[2] .. name, by * value) end
  end
  add('rated', 1)
  if accepted ~= '' then
    add('judged', 1)
    add('accepted', tonumber(accepted))
  end
  if score ~= '' then
    add('scored', 1)
    add('score_sum', tonumber(score))
  end
end

local former = redis.call('GET', KEYS[2]) or ARGV[5]
if former ~= '' then count(-1, string.match(former, '^([01]?),(%d*)$')) end
count(1, ARGV[3], ARGV[4])
redis.call('SET', KEYS[2], ARGV[3] .. ',' .. ARGV[4], 'PX', ARGV[1])
return {former ~= '' and 'replaced' or 'new'}
