-- What the steps change about who holds, for the audit log `log`, where there is one: the twin of
-- `Queue::audit`. The log is a stream. How much of it is kept is so many entries of the stream, or,
-- below zero, so many milliseconds.
--
-- One call adds one entry of the stream, with all that its steps noted in one field, one behind
-- the other. `codec/audit.rs` has the format.
local entries, note, forget_entries
if log then
  local count, last_body, min, floor = 0, nil, math.min, math.floor
  entries = {}
  -- The kind says what the numbers `one` and `other` mean. A body is the claim's; what only some
  -- have, a secret above all, is left out. `text` is another claim's id, if there is one, or of 'k' a
  -- client.
  note = function(kind, key, at, token, arrival, one, other, id, body, text)
    if #id < 12 then
      -- As the core's `ClaimId` is shown.
      id = sub(sub(id, 1, floor(#id / 2)) .. '\0\0\0\0\0\0', 1, 6)
    end
    if body ~= '' and byte(body) > 3 then
      local host = 15 + byte(body, 10)
      local label = host + 1 + byte(body, host)
      body = sub(body, 1, label + byte(body, label))
    end
    local as_before = body == last_body
    last_body = body
    count = count + 1
    entries[count] = pack('<Bdddddc6I2c0I2c0', byte(kind), at, token, arrival, one, other, id, #key, key,
      as_before and 65535 or #body, as_before and '' or body)
    if text then
      if kind ~= 'k' and text ~= '' then
        text = sub(sub(text, 1, min(6, floor(#text / 2))) .. '\0\0\0\0\0\0', 1, 6)
      end
      entries[count] = entries[count] .. pack('<I2c0', #text, text)
    end
  end
  -- What was noted since was not written.
  forget_entries = function(before)
    for last = count, before + 1, -1 do
      entries[last] = nil
    end
    count, last_body = min(count, before), nil
  end
end
