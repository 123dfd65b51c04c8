-- The start of every script: the time, and how others are told.
--
-- Numbers are whole microseconds below 2^53, which Lua keeps exactly but prints
-- rounded: they enter strings by struct.pack or `%.0f` only.
local call = redis.call
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
-- StoreTime::LATEST, and what may have become of it after the clock stepped back:
-- deadlines and tokens after it need room below 2^53.
local LATEST, FURTHEST = 7881299347898368, 8444249301319680
local function too_late()
  return {err = string.format('LHCLOCK %.0f', clock)}
end
if clock > LATEST then
  return too_late()
end
-- Whether the client of an inbox may live, as far as can be seen: one whose name
-- begins with a dash cannot hear. The record is written by now, so a user who may not
-- publish must not end the script.
local function publish(prefix, inbox, text)
  if string.sub(inbox, 1, 1) == '-' then
    return true
  end
  local heard = redis.pcall('PUBLISH', prefix .. 'inbox:' .. inbox, text)
  return type(heard) ~= 'number' or heard > 0
end

-- What shows the client of the claim `id` that a line comes from a script: the core's
-- `Proof`. Whoever may use the channels hears lines and can publish them, and no id is
-- ever in one.
local function prove(id, said)
  return redis.sha1hex(id .. ' ' .. said .. ' ' .. id)
end
