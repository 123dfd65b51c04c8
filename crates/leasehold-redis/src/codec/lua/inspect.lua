-- Looks at a key; changes nothing. What is there is decoded by the client.
--
-- KEYS[1]  <prefix>lock:<name>
-- KEYS[2]  <prefix>last; not in a cluster
--
-- Returns  {clock, last}                          nothing there
--          {clock, last, record}                  the short form
--          {clock, last, field, value, …}         the long form
--          or the error LHTYPE
local key = KEYS[1]
-- include time.lua
local texts = call('MGET', key, KEYS[2] or key)
local last = KEYS[2] and tonumber(texts[2] or 0) or 0
if texts[1] then
  return {clock, last, texts[1]}
end
local fields = redis.pcall('HGETALL', key)
if fields.err then
  return {err = 'LHTYPE ' .. call('TYPE', key).ok}
end
table.insert(fields, 1, last)
table.insert(fields, 1, clock)
return fields
