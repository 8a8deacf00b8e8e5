-- The clock: Redis TIME in unix ms, or the time that a test passes.

local MANUAL, asked_at = false, nil -- the time that this call read last

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
