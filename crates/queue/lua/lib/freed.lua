-- Gates that a job has passed out of in this call. `lib/resume` lets those held there go on at the end of the call.

local freed = {} -- gates that one passed out of, each once, in the order of their freeing

local function free(scope)
  if freed[scope] then return end
  freed[scope] = true
  freed[#freed + 1] = scope
end
