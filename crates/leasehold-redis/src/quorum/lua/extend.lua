-- Asks one of several servers to vote on. The twin of `Node::extend`.
--
-- KEYS[1]  <prefix>lock:<name>
-- KEYS[2]  <prefix>boot
-- KEYS[3]  the audit log, if there is one
-- ARGV     see vote.lua
--
-- Returns  1, at        yes
--          5, at        lost
--          7, at, left  in quarantine
--          8, at        of another set
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION
local key = KEYS[1]
-- include time.lua
-- include node.lua
-- include gate.lua
-- include vote.lua
if live and holder == id and token == wanted then
  return raise()
end
local no = gate(ARGV[7], ARGV[8], ARGV[9] + 0)
if no then
  return no
elseif flags >= 2 then
  flags = 0
  local answer = acquire(true)
  if struct.unpack('<B', answer) == 1 then
    return answer
  end
end
return struct.pack('<Bd', 5, now)
