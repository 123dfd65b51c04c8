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
