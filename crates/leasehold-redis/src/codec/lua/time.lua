-- The start of every script: the time.
--
-- Numbers are whole microseconds below 2^53, which Lua keeps exactly but prints
-- rounded: they enter strings by struct.pack or `%.0f` only.
local call = redis.call
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
-- StoreTime::LATEST, and what may have become of it after the clock stepped back:
-- deadlines and tokens after it need room below 2^53.
local LATEST, FURTHEST = 7881299347898368, 8444249301319680
if clock > LATEST then
  return {err = string.format('LHCLOCK %.0f', clock)}
end
