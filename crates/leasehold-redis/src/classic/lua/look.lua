-- Looks at a key; changes nothing.
--
-- KEYS[1]  <prefix><name>
--
-- Returns  what TYPE, GET and PTTL answer; no value where it is no string
local kind = redis.call('TYPE', KEYS[1]).ok
return {kind, kind == 'string' and redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}
