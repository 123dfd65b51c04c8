-- Takes a vote back, and leaves a tombstone. The twin of `Node::release`. Works
-- when the memory is full.
--
-- KEYS[1]  <prefix>lock:<name>
-- KEYS[2]  the audit log, if there is one
-- ARGV[1]  claim id
-- ARGV[2]  the highest token that may still be under way; 0 where none can be
-- ARGV[3]  flags: 1 wakes one who waits
-- ARGV[4]  retention, in microseconds
-- ARGV[5]  with an audit log: how much of it is kept, as audit.lua counts
--
-- Returns  9, at, 1 if this server voted for the claim
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION
local key = KEYS[1]
-- include time.lua
-- include node.lua
local log = KEYS[2]
-- include notes.lua
local id, gone, retention = ARGV[1], ARGV[2] + 0, ARGV[4] + 0
local held = live and holder == id
if token > 0 and holder == id then
  if log then
    note_end(id, ARGV[3] == '1', gone > 0)
  end
  token, deadline, since = 0, 0, 0
  holder, inbox, owner, note = '', '', '', ''
end
released = math.max(released, gone)
if gone > 0 and proposer == id then
  proposer = ''
end
if held and ARGV[3] == '1' then
  wake()
end
if held then
  tell_watchers()
end
if raw or gone > 0 then
  save(retention, true)
end
if log then
  write_notes(ARGV[5])
end
return struct.pack('<Bdd', 9, now, held and 1 or 0)
