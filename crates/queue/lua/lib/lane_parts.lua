-- Parts of the names of lanes and classes.

-- A lane is <priority>:<class>:<tenant>:<endpoint>.
local function parts_of(lane) return string.match(lane, '^(%d+):(%d+):([^:]*):(.*)$') end

-- A class is <number of the requirement set> * 1000 + <GiB>.
local function parts_of_class(class) return math.floor(class / 1000), class % 1000 end
