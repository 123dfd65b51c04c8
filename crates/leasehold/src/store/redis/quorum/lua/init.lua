-- An administrator says that this server is new. The twin of `Marker::init`.
--
-- KEYS[1]  <prefix>boot
-- ARGV[1]  the run id of this server, read on the same connection
-- ARGV[2]  the name of the set
-- ARGV[3]  quarantine, in microseconds
--
-- Returns  7, at, what is left of a quarantine or 0
--          packed as one byte and doubles
-- include time.lua
local now = clock
local run, set, quarantine = ARGV[1], ARGV[2], ARGV[3] + 0
local marker = call('MGET', KEYS[1])[1]
local wait = 0
if marker then
  local ends, known_quarantine, known_run, known_set = struct.unpack('<ddBc0Bc0', marker)
  if known_set ~= set or known_quarantine ~= quarantine then
    wait = math.max(known_quarantine, quarantine)
  elseif known_run == run then
    return struct.pack('<Bdd', 7, now, math.max(ends - now, 0))
  else
    wait = quarantine
  end
end
call('SET', KEYS[1], struct.pack('<ddBc0Bc0', now + wait, quarantine, #run, run, #set, set))
return struct.pack('<Bdd', 7, now, wait)
