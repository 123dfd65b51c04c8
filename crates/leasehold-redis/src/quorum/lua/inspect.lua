-- Looks at a key at one of several servers; changes nothing. The twin of
-- `Node::live`.
--
-- KEYS[1]  <prefix>lock:<name>
--
-- Returns  this server's clock, and the record or nothing; see node.lua
local time = redis.call('TIME')
local raw = redis.call('MGET', KEYS[1])[1]
if not raw and redis.call('EXISTS', KEYS[1]) == 1 then
  return {err = 'LHTYPE ' .. redis.call('TYPE', KEYS[1]).ok}
end
return {string.format('%.0f', time[1] * 1000000 + time[2]), raw}
