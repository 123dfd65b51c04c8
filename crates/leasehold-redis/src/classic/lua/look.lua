-- Looks at a key; changes nothing.
--
-- KEYS[1]  <prefix><name>
--
-- Returns  what TYPE, GET and PTTL answer; no value where it is no string, and only the
--          beginning of one that is longer than any id, as other data may be
local kind = redis.call('TYPE', KEYS[1]).ok
local value = kind == 'string' and redis.call('GET', KEYS[1])
return {kind, value and string.sub(value, 1, 1024), redis.call('PTTL', KEYS[1])}
