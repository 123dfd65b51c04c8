-- Lets an inbox hear of every change; or of nothing any more, also if it waits.
-- The twin of `Node::watch`.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  inbox
-- ARGV[2]  for how long, in microseconds; 0 for no longer
-- ARGV[3]  retention, in microseconds
--
-- Returns  11, at
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION
local key = KEYS[1]
-- include time.lua
-- include node.lua
local ttl = ARGV[2] + 0
drop(watchers, ARGV[1])
if ttl == 0 then
  drop(waiting, ARGV[1])
elseif #watchers < 64 then
  watchers[#watchers + 1] = {ends = now + ttl, inbox = ARGV[1]}
end
local retention = ARGV[3] + 0
local used = accepted > 0 or released > 0 or #waiting > 0
if used or #watchers > 0 then
  -- Who watches a key that nobody uses leaves nothing for long.
  save(used and retention or math.min(retention, ttl + 60000000), false)
elseif raw then
  call('PEXPIRE', key, 0)
end
return struct.pack('<Bd', 11, now)
