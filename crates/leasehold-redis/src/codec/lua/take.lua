-- What the lean way leaves. A function is made where the script first comes to it.
--
-- How long a record is kept that is not needed any more, so that its end need not be moved at
-- each step: a sixteenth of it may go by. Released ids are kept for as long as the rest of it.
local SPARE = in_cluster and ARGV[2] + 0 or 64000000
-- Whether the count of PUBLISH can be believed; where not, everything counts as heard. Whether the
-- client listens.
local believed, listens = flags % 8 >= 4, flags % 32 >= 16
-- include tell.lua
-- include lean_queue.lua
-- For how long a key lives that is needed for so many microseconds.
local function millis(micros)
  return math.max(math.ceil(micros / 1000), 1)
end
-- include machine.lua
local at_length, cut, entries_before

-- Answers what to say, packed and not, and whether it must be written.
local function further(at, dry, may_force)
  local key, command = KEYS[at], ARGV[at + 2]
  local verb, marks = byte(command, 1, 2)
  local answer, silent, heir
  local plain = verb == 1 and marks % 8 < 4 or verb == 3
  if plain and (touched[key] == IN_QUEUE or not values[at]) and dry == false and may_force then
    answer, silent, heir = in_queue(at, key, verb, marks, command)
  end
  if not answer then
    write_queue()
  end
  entries_before = entries and #entries
  touched[key] = answer and IN_QUEUE or CHANGED
  if (silent or not answer) and not at_length then
    at_length, cut = machine()
  end
  if silent then
    cut(key, silent, heir)
  end
  if answer then
    return answer
  end
  return at_length(at, dry, may_force)
end

-- Takes a step. A damaged record must not keep the other steps from their end.
take = function(at, dry, may_force)
  if in_cluster or touched[KEYS[at]] == IN_QUEUE then
    -- A hash, or nothing.
    values[at] = false
  elseif values[at] == nil then
    values[at] = call('MGET', KEYS[at])[1]
  end
  entries_before, values.saved = entries and #entries, false
  local well, answer, said, must = pcall(further, at, dry, may_force)
  -- Nothing of a step that failed was written, in whatever way, unless it failed while it was told.
  if note and (not well and not values.saved or type(answer) == 'table') then
    forget_entries(entries_before)
  end
  if not well then
    return type(answer) == 'table' and answer or {err = 'ERR ' .. tostring(answer)}
  end
  return answer, said, must
end
