-- How long a record is kept that is not needed any more, so that its end need not be moved at
-- each step: a sixteenth of it may go by. Released ids are kept for as long as the rest of it.
local SPARE = in_cluster and ARGV[2] + 0 or 64000000
-- Whether the count of PUBLISH can be believed; where not, everything counts as heard.
local believed = flags % 8 >= 4
-- include tell.lua
-- include lean_queue.lua
-- include machine.lua
local at_length, cut

-- Takes a step; answers what to say, packed and not, and whether it must be written.
return function(at, dry, may_force)
  local key, command = KEYS[at], ARGV[at + 2]
  local verb, marks = byte(command, 1, 2)
  local answer, silent, heir
  local plain = verb == 1 and marks % 8 < 4 or verb == 3
  if plain and (touched[key] == IN_QUEUE or not values[at]) and dry == false and may_force then
    answer, silent, heir = in_queue(at, key, verb, marks, command)
  end
  if not answer then
    write_queue()
    if touched[key] then
      refresh(at)
    end
  end
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
  entries_before = entries and #entries
  return at_length(at, dry, may_force)
end
