-- The clock: Redis TIME in unix ms, unless a test hands in its own.

local MANUAL, asked_at = false, nil -- when this call asked last

local function clock(given)
  if given ~= '' then
    MANUAL = given
    asked_at = tonumber(given)
  else
    local time = redis.call('TIME')
    asked_at = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return asked_at
end
