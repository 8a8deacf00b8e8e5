-- The root of a shard, and the keys of what most scripts use. `KEYS[1]` is always the root, for example `{stoke:0}`.
-- Every other key is derived from it, so that a script never leaves the hash slot of the root (keys.rs lists all keys).

local ROOT = KEYS[1]

local function job_key(id) return ROOT .. ':j:' .. id end
local function batch_key(batch) return ROOT .. ':b:' .. batch end
local function runs_key(worker) return ROOT .. ':runs:' .. worker end
