-- Parts of a call that may fail alone.
--- @include "lib/keys"

local WHY_MAX = 300

-- The message of a raised error. A failed command raises a table, anything else a text.
local function why_of(raised)
  return string.sub(type(raised) == 'table' and raised.err or tostring(raised), 1, WHY_MAX)
end

-- Runs a part of a call that belongs to no single job. An error in it is logged and counted in `:faults`, and the other
-- parts still run. Returns what `body` returned, or nil after an error.
local function attempt(part, body, ...)
  local done, answer = pcall(body, ...)
  if done then return answer end
  redis.pcall('HINCRBY', ROOT .. ':faults', part, 1)
  redis.log(redis.LOG_WARNING, 'stokehold: ' .. part .. ': ' .. why_of(answer))
end
