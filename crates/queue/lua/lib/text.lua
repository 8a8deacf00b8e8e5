-- Numbers as text.

-- Numbers as text: Lua would write a large one as 1.7e+12.
local function text(number) return string.format('%.0f', number) end
