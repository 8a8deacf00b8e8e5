-- Ids as the 16 bytes that streams hold.

-- Streams hold the 16 bytes of an id, everything else its 32 hexadecimal digits.
local HEX = string.rep('%02x', 16)

-- nil of what is no id.
local function id_of(raw) return raw and #raw == 16 and string.format(HEX, string.byte(raw, 1, 16)) or nil end
