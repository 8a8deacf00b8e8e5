-- Webhook messages of a job.
--- @include "lib/outbox"

-- Adds a message to the outbox if the job's webhook receives this event. `hook` is "<event,event> <url>", nil if there
-- is none.
local function notify_webhook(job, event, suffix, now)
  if not job.hook then return end
  local events, url = string.match(job.hook, '^(%S*) (.*)$')
  if not string.find(',' .. events .. ',', ',' .. event .. ',', 1, true) then return end
  local msg = 'msg_' .. job.id .. '_' .. string.match(event, '[^.]*$') .. (suffix and '_' .. suffix or '')
  outbox(now, msg, event, job.id, job.tenant, url)
end
