-- Looks at a key; changes nothing. What is there is decoded by the client.
--
-- KEYS[1]  <prefix>lock:<name>
--
-- Returns  {clock}                          nothing there
--          {clock, record}                  the short form
--          {clock, field, value, …}         the long form
--          or the error LHTYPE
local key = KEYS[1]
-- include time.lua
local raw = call('MGET', key)[1]
if raw then
  return {clock, raw}
end
local fields = redis.pcall('HGETALL', key)
if fields.err then
  return {err = 'LHTYPE ' .. call('TYPE', key).ok}
end
table.insert(fields, 1, clock)
return fields
