-- Counters that the jobs of one call change. `flush` writes each of them once, at the end of the call. The builder
-- (scripts.rs) runs `flush` at the end of every script that includes this file, even after an error.
--- @include "lib/attempt"

local tallies = {} -- key -> field -> change
local journal = {} -- key, field, change, ... in order, to undo the counts of a job that fails

-- Changes a counter in a hash. A counter that reaches 0 is deleted, so that an empty queue leaves nothing behind.
local function count(key, field, by)
  local fields, n = tallies[key], #journal
  if not fields then
    fields = {}
    tallies[key] = fields
  end
  fields[field] = (fields[field] or 0) + by
  journal[n + 1], journal[n + 2], journal[n + 3] = key, field, by
end

-- Undoes all counts since the journal had `length` entries.
local function uncount(length)
  for n = #journal, length + 1, -3 do
    local fields = tallies[journal[n - 2]]
    if fields then fields[journal[n - 1]] = fields[journal[n - 1]] - journal[n] end
    journal[n], journal[n - 1], journal[n - 2] = nil, nil, nil
  end
end

-- The value of a counter at this point of the call.
local function counted(key, field)
  local change = tallies[key] and tallies[key][field] or 0
  -- A value that is not a number counts as 0, as in `flush_counts`. The recovery sweep recounts it.
  return (tonumber(redis.call('HGET', key, field)) or 0) + change
end

local function flush_counts()
  local counted_now = tallies
  tallies, journal = {}, {}
  for key, fields in pairs(counted_now) do
    local names, set, gone = {}, {}, {}
    for field, by in pairs(fields) do
      if by ~= 0 then names[#names + 1] = field end
    end
    for n, before in ipairs(#names > 0 and redis.call('HMGET', key, unpack(names)) or {}) do
      local number = (tonumber(before) or 0) + fields[names[n]]
      if number > 0 then
        set[#set + 1] = names[n]
        set[#set + 1] = number
      else
        gone[#gone + 1] = names[n]
      end
    end
    if #set > 0 then redis.call('HSET', key, unpack(set)) end
    if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  end
end

-- What else runs at the end of a call: name (false = an error ends the script), function, ...
local parts = {}

local function at_end(part, body) parts[#parts + 1], parts[#parts + 2] = part, body end

-- Runs the parts in the order of the includes, so that each part sees what the parts before it have written.
local function flush()
  attempt('counts', flush_counts)
  for n = 1, #parts, 2 do
    if parts[n] then attempt(parts[n], parts[n + 1]) else parts[n + 1]() end
    if #journal > 0 then attempt('counts', flush_counts) end
  end
end
