-- Traces to export: jobs that end while a replica exports traces (trace_claim.lua).
--- @include "lib/counts", "lib/keys"

local TRACE_AFTER_MS = 2000 -- a trace contains its webhooks; most are delivered by then
local traced = {} -- due time, ID, ... of this call
local is_exported -- read once a call

local function trace(id, now)
  if is_exported == nil then is_exported = redis.call('EXISTS', ROOT .. ':tracing') == 1 end
  if not is_exported then return end
  traced[#traced + 1] = now + TRACE_AFTER_MS
  traced[#traced + 1] = id
end

local function flush_traces()
  if #traced > 0 then redis.call('ZADD', ROOT .. ':traces', unpack(traced)) end
  traced = {}
end

at_end('traces', flush_traces)
