-- An administrator says that this server is new. The twin of `Marker::init`.
--
-- KEYS[1]  <prefix>boot
-- ARGV[1]  the run id of this server, read on the same connection
-- ARGV[2]  the name of the set
-- ARGV[3]  quarantine, in microseconds
--
-- Returns  7, at, what is left of a quarantine or 0, and 1 where it was marked as new,
--          2 where it belonged to others, 0 where it was marked before
--          packed as one byte and doubles
-- include time.lua
-- include marker.lua
local run, set, quarantine = ARGV[1], ARGV[2], ARGV[3] + 0
local terms = struct.pack('<dBc0Bc0', quarantine, #run, run, #set, set)
local marker = call('MGET', KEYS[1])[1]
local became = 0
local left = marker and admit(KEYS[1], terms)
local failed = type(left) == 'table' and left.err
if failed and failed ~= 'LHFOREIGN settings' then
  return left
elseif failed or not left then
  became = marker and 2 or 1
  left = marker and math.max(struct.unpack('<d', marker, 9), quarantine) or 0
  call('SET', KEYS[1], struct.pack('<d', clock + left) .. terms)
end
return struct.pack('<Bddd', 7, clock, left, became)
