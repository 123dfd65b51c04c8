-- Takes the key from whoever has it. The twin of `Node::break_key`.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  nothing up to this token is accepted any more
-- ARGV[2]  retention, in microseconds
--
-- Returns  10, at, the token that is void now or 0
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION
local key = KEYS[1]
-- include time.lua
-- include node.lua
local void = 0
if live then
  void = token
  tell(inbox, 'r', token, holder)
end
token, deadline, since = 0, 0, 0
proposer, holder, inbox, owner, note = '', '', '', '', ''
released = math.max(released, ARGV[1] + 0)
wake()
tell_watchers()
save(ARGV[2] + 0, true)
return struct.pack('<Bdd', 10, now, void)
