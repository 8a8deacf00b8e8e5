-- The states of a job, and the job that was loaded last.

local OPEN_STATES = {scheduled = true, blocked = true, queued = true, running = true}
local ENDED_STATES = {succeeded = true, failed = true, cancelled = true, expired = true}
local loaded -- set by lib/load
