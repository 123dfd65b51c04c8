-- Asks whether this server grants anything, so that a quarantine begins with the first
-- client that comes. The twin of `Marker::admit`.
--
-- KEYS[1]  <prefix>boot
-- ARGV[1]  the terms; see marker.lua
--
-- Returns  7, at, what is left of a quarantine or 0
--          packed as one byte and doubles, or the error LHFOREIGN
-- include time.lua
-- include marker.lua
local left = admit(KEYS[1], ARGV[1])
if not left then
  return {err = 'LHFOREIGN settings'}
end
return type(left) == 'table' and left or struct.pack('<Bdd', 7, clock, left)
