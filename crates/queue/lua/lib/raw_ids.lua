-- The 16 bytes of an ID.

local function raw_of(id)
  return (string.gsub(id, '%x%x', function(digits) return string.char(tonumber(digits, 16)) end))
end
