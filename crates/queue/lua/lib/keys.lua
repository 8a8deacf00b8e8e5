-- The root of a shard and the keys that most scripts use. `KEYS[1]` is always the root, e.g. `{stoke:0}`. All other
-- keys start with it, so that a script stays in one hash slot. keys.rs lists all keys.

local ROOT = KEYS[1]

local function job_key(id) return ROOT .. ':j:' .. id end
local function batch_key(batch) return ROOT .. ':b:' .. batch end
local function runs_key(worker) return ROOT .. ':runs:' .. worker end
