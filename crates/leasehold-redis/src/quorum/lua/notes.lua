-- What a step changes about this server's vote, for its audit log `log`, where there is one: the
-- twin of `Node::noted`. `codec/audit.rs` has the format.
local note_end, note_vote, note_break, write_notes
if log then
  local byte, sub, pack = string.byte, string.sub, struct.pack
  -- include audit.lua
  local function of_holder()
    return holder, pack('<BI4I4B', 0, 0, 1048576, 0) .. owner
  end
  -- Before the vote of the record ends: by the request of claim `by`, or of nobody. One that stands still
  -- is released, with 'r', or was given up.
  note_end = function(by, released, known)
    local id, body = of_holder()
    if deadline <= now then
      note('x', key, now, token, token, since, deadline, id, body, by)
    elseif released then
      note('r', key, now, token, token, since, known and 1 or 0, id, body)
    else
      note('b', key, now, token, token, 0, 0, id, body)
    end
  end
  note_vote = function()
    local id, body = of_holder()
    note('v', key, now, token, token, deadline, 0, id, body)
  end
  note_break = function(up_to, by, void)
    local id, body = '', ''
    if void > 0 then
      id, body = of_holder()
    elseif token > 0 and not live then
      note_end('')
    end
    note('k', key, now, void, void, 0, up_to, id, body, by)
  end
  write_notes = function(keep)
    if #entries > 0 then
      -- include write_log.lua
    end
  end
end
