-- IDs as the 16 bytes that streams hold.

-- Streams hold the 16 bytes of an ID, everything else its 32 hexadecimal digits.
local HEX = string.rep('%02x', 16)

-- The ID of these bytes; nil if they are not an ID.
local function id_of(raw) return raw and #raw == 16 and string.format(HEX, string.byte(raw, 1, 16)) or nil end
