-- What many jobs of one call change together is written once, by `flush` at the call's end: nobody can look in between.
local tallies = {} -- key -> field -> change
local ended = {} -- due, id, ... of the jobs that ended
local stopped = {} -- ids that give their lease back
local grown = {} -- field of `:flow` -> by how much
local freed = {} -- gates that one passed out of, each once, in the order of their freeing

local function free(gate)
  if freed[gate] then return end
  freed[gate] = true
  freed[#freed + 1] = gate
end

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
  tallies = {}
end

local FLOW_MAX = 200000 -- fields: endpoints by kinds of card, which workers name

-- A number that only grows, of `:flow`.
local function grow(field, by) grown[field] = (grown[field] or 0) + by end

local function flush_growth()
  for field, by in pairs(grown) do
    -- What is new has its first value.
    if by > 0 and redis.call('HINCRBY', ROOT .. ':flow', field, text(by)) == by and redis.call('HLEN', ROOT .. ':flow') > FLOW_MAX then
      redis.call('HDEL', ROOT .. ':flow', field)
    end
  end
  grown = {}
end
