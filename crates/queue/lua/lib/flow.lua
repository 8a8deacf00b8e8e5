-- Numbers that only grow, of `:flow`.
--- @include "lib/counts", "lib/keys", "lib/text"

local FLOW_MAX = 200000 -- fields: endpoints by kinds of card, which workers name
local grown = {} -- field of `:flow` -> by how much

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

at_end('flow', flush_growth)
