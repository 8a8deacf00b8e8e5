-- The outbox: webhook messages are written by the same script that commits the change they report.
--- @include "lib/announce", "lib/extra_memory", "lib/keys", "lib/text"

local KEPT_MESSAGES = 10000 -- messages of a tenant that the delivery log lists
local MESSAGE_BYTES = 1024 -- bytes of a message besides its URL and its body

-- Adds a message to deliver. Repeating the same `msg` changes nothing.
local function outbox(now, msg, event, subject, tenant, url)
  local key, list = ROOT .. ':w:' .. msg, ROOT .. ':wl:' .. tenant
  if redis.call('EXISTS', key) == 1 then return end
  redis.call('HSET', key, 'event', event, 'subject', subject, 'tenant', tenant, 'url', url, 'created', text(now),
    'state', 'pending', 'tries', 0, 'size', MESSAGE_BYTES + #url)
  take_extra_memory(tenant, MESSAGE_BYTES + #url)
  redis.call('ZADD', ROOT .. ':hooks', now, msg)
  redis.call('ZADD', list, now, msg)
  redis.call('ZREMRANGEBYRANK', list, 0, -KEPT_MESSAGES - 1)
  announce('hooks')
end
