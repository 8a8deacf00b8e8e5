-- Limit scopes that a job of this call has left. At the end of the call, `lib/resume` retries what they blocked.

local freed = {} -- scopes, each once, in the order in which they were freed

local function free(scope)
  if freed[scope] then return end
  freed[scope] = true
  freed[#freed + 1] = scope
end
