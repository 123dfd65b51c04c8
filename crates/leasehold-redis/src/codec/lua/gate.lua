-- Whether this server grants anything yet: the start of every script of a client that
-- asks for it (`restart=quarantine`). Lines that begin with `gated:` are in those
-- scripts only, which have one more key and one more argument than their heads say:
--
-- KEYS[#KEYS]  <prefix>boot
-- ARGV[#ARGV]  the terms; see marker.lua
--
-- Returns the error LHFOREIGN where the server belongs to other clients.
-- include marker.lua
-- Whether this script only looks: then it starts no quarantine.
local only_looks = false
-- In microseconds: 0 when it is open.
local closed_for
do
  local terms = table.remove(ARGV)
  closed_for = admit(table.remove(KEYS), terms, only_looks)
  if not closed_for then
    return {err = 'LHFOREIGN settings'}
  elseif type(closed_for) == 'table' then
    if not string.find(closed_for.err, 'OOM', 1, true) then
      return closed_for
    end
    -- Who holds may go on when the memory is full. Who holds no more is not known.
    closed_for = struct.unpack('<d', terms)
  end
end
