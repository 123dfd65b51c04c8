-- Asks whether this server grants anything. The twin of `Marker::look`, and of
-- `Marker::admit` for a client that has asked for locks: so a quarantine begins when
-- such a client comes back, and not only with its next request.
--
-- KEYS[1]  <prefix>boot
-- ARGV[1]  the terms; see marker.lua
-- ARGV[2]  1 to start a quarantine where the server may have forgotten something
--
-- Returns  7, at, what is left of a quarantine or 0
--          packed as one byte and doubles, or the error LHFOREIGN
-- include time.lua
-- include marker.lua
local left = admit(KEYS[1], ARGV[1], ARGV[2] ~= '1')
return type(left) == 'table' and left or struct.pack('<Bdd', 7, clock, left)
