-- Takes the key from whoever has it. The twin of `Node::break_key`.
--
-- KEYS[1]  <prefix>lock:<name>
-- KEYS[2]  the audit log, if there is one
-- ARGV[1]  nothing up to this token is accepted any more; who holds by a later one goes on
-- ARGV[2]  retention, in microseconds
-- ARGV[3]  with an audit log: who does it, as in a body of record.rs
-- ARGV[4]  with an audit log: how much of it is kept, as audit.lua counts
--
-- Returns  10, at, the token that is void now or 0
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION
local key = KEYS[1]
-- include time.lua
-- include node.lua
local log = KEYS[2]
-- include notes.lua
local void, up_to = 0, ARGV[1] + 0
local later = live and token > up_to
if live and not later then
  void = token
  tell(inbox, 'r', token, holder)
end
if log then
  note_break(up_to, ARGV[3], void)
end
released = math.max(released, up_to)
if not later then
  token, deadline, since = 0, 0, 0
  proposer, holder, inbox, owner, note = '', '', '', '', ''
  wake()
  tell_watchers()
end
save(ARGV[2] + 0, true)
if log then
  write_notes(ARGV[4])
end
return struct.pack('<Bdd', 10, now, void)
