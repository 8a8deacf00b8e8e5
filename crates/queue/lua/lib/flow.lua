-- Counters of `:flow`, which only grow.
--- @include "lib/counts", "lib/keys", "lib/text"

-- Maximum number of fields. Workers name the kinds of GPU, so the number of fields is not bounded otherwise.
local FLOW_MAX = 200000
local grown = {} -- field of `:flow` -> change in this call

-- Increases a counter of `:flow`.
local function grow(field, by) grown[field] = (grown[field] or 0) + by end

local function flush_growth()
  for field, by in pairs(grown) do
    -- The result equals the change only if the field is new.
    if by > 0 and redis.call('HINCRBY', ROOT .. ':flow', field, text(by)) == by
      and redis.call('HLEN', ROOT .. ':flow') > FLOW_MAX then
      redis.call('HDEL', ROOT .. ':flow', field)
    end
  end
  grown = {}
end

at_end('flow', flush_growth)
