-- What many jobs of one call change together is written once, by `flush` at the call's end: nobody can look in between.
local tallies = {} -- key -> field -> change
local ended = {} -- due, id, ... of the jobs that ended
local stopped = {} -- ids that give their lease back
local freed = {} -- gates that one passed out of

-- A number in a hash that goes with its last unit, so that a drained queue leaves nothing behind.
local function count(key, field, by)
  local fields = tallies[key]
  if not fields then
    fields = {}
    tallies[key] = fields
  end
  fields[field] = (fields[field] or 0) + by
end

-- What such a number is at this point of the call.
local function counted(key, field)
  local change = tallies[key] and tallies[key][field] or 0
  return tonumber(redis.call('HGET', key, field) or 0) + change
end

local function flush_counts()
  for key, fields in pairs(tallies) do
    for field, by in pairs(fields) do
      if by ~= 0 and redis.call('HINCRBY', key, field, by) <= 0 then redis.call('HDEL', key, field) end
    end
  end
  tallies = {}
end
