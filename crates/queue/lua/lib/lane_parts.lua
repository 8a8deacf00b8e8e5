-- The parts of the name of a lane and of a class.

-- A lane is <priority>:<class>:<tenant>:<endpoint>.
local function parts_of(lane) return string.match(lane, '^(%d+):(%d+):([^:]*):(.*)$') end

-- A class is demands * 1000 + GiB (reach.rs).
local function parts_of_class(class) return math.floor(class / 1000), class % 1000 end
