-- Parts of a call that may fail alone.
--- @include "lib/keys"

local WHY_MAX = 300

-- What was raised: a text, or the table of a command that failed.
local function why_of(raised)
  return string.sub(type(raised) == 'table' and raised.err or tostring(raised), 1, WHY_MAX)
end

-- Runs a part of a call for which no job is to blame. What it raises is counted (`:faults`) and keeps no other part
-- from its work. Returns what `body` returned; nil when it raised.
local function attempt(part, body, ...)
  local done, answer = pcall(body, ...)
  if done then return answer end
  redis.pcall('HINCRBY', ROOT .. ':faults', part, 1)
  redis.log(redis.LOG_WARNING, 'stokehold: ' .. part .. ': ' .. why_of(answer))
end
