-- Numbers as text.

-- Formats a number as an integer: Lua would write a large one as 1.7e+12.
local function text(number) return string.format('%.0f', number) end
