-- The start of every script: the time.
--
-- Numbers are whole microseconds below 2^53, which Lua keeps exactly but prints
-- rounded: they enter strings by struct.pack or `%.0f` only.
local call = redis.call
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
-- Whether the key lies on a node of a cluster. While its slot moves away, that node
-- refuses to touch a key that is not there, also one that this very script has just
-- deleted: so there a record is a hash from the start and changes its form never.
local in_cluster = false
