-- The outbox: what webhooks tell of is written in the very script that commits it.
--- @include "lib/announce", "lib/extra_memory", "lib/keys", "lib/text"

local KEPT_MESSAGES = 10000 -- of a tenant, for its delivery log
local MESSAGE_BYTES = 1024 -- what a message takes beside its URL and its body

-- One message to deliver. The same `msg` again changes nothing.
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
