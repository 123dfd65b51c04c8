-- The start of every script: the time.
--
-- Numbers are whole microseconds below 2^53, which Lua keeps exactly but prints
-- rounded: they enter strings by struct.pack or `%.0f` only.
local call = redis.call
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
