-- The outbox: what webhooks tell of is written in the very script that commits it.
local KEPT_MESSAGES = 10000 -- of a tenant, for its delivery log
local MESSAGE_BYTES = 1024 -- what a message takes beside its URL and its body
local PROGRESS_EVERY_MS = 1000 -- a handler may tell of its progress as often as it likes; its receiver hears less

-- One message to deliver. The same `msg` again changes nothing.
local function outbox(now, msg, event, subject, tenant, url)
  local key, list = ROOT .. ':w:' .. msg, ROOT .. ':wl:' .. tenant
  if redis.call('EXISTS', key) == 1 then return end
  redis.call('HSET', key, 'event', event, 'subject', subject, 'tenant', tenant, 'url', url, 'created', text(now),
    'state', 'pending', 'tries', 0, 'size', MESSAGE_BYTES + #url)
  take_beside(tenant, MESSAGE_BYTES + #url)
  redis.call('ZADD', ROOT .. ':hooks', now, msg)
  redis.call('ZADD', list, now, msg)
  redis.call('ZREMRANGEBYRANK', list, 0, -KEPT_MESSAGES - 1)
  announce('hooks')
end

-- A job's message, if its owner wants to hear of this event. `hook` is "<event,event> <url>", nil when there is none.
local function tell(job, event, suffix, now)
  if not job.hook then return end
  local events, url = string.match(job.hook, '^(%S*) (.*)$')
  if not string.find(',' .. events .. ',', ',' .. event .. ',', 1, true) then return end
  local msg = 'msg_' .. job.id .. '_' .. string.match(event, '[^.]*$') .. (suffix and '_' .. suffix or '')
  outbox(now, msg, event, job.id, job.tenant, url)
end
