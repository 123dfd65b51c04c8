-- Where the script runs, and whether this server grants anything yet. A script that includes this
-- has read its `flags`, of which these say the way:
--
--   32   a node of a cluster. While its slot moves away, that node refuses to touch a key that is
--        not there, also one that this very script has just deleted: so there a record is a hash
--        from the start and never changes its form
--   64   a server that may have forgotten who holds (`restart=quarantine`): see marker.lua. The
--        last key is its marker, <prefix>boot, and the last argument the terms
--   128  the script only looks: it starts no quarantine
--
-- Returns the error LHFOREIGN where the server belongs to other clients.
local in_cluster, gated = flags % 64 >= 32, flags % 128 >= 64
-- In microseconds: 0 when it is open.
local closed_for = 0
if gated then
-- include marker.lua
  local terms = ARGV[#ARGV]
  closed_for = admit(table.remove(KEYS), terms, flags % 256 >= 128)
  if type(closed_for) == 'table' then
    if not string.find(closed_for.err, 'OOM', 1, true) then
      return closed_for
    end
    -- Who holds may go on when the memory is full. Who holds no more is not known.
    closed_for = struct.unpack('<d', terms)
  end
end
