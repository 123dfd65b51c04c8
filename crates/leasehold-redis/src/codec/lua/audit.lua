-- What the steps change about who holds, for the audit log: the twin of `Queue::audit`. The log is
-- a stream, the last key. How much of it is kept stands behind the commands: so many entries of the
-- stream, or, below zero, so many milliseconds.
--
-- One call adds one entry of the stream, with all that its steps noted in one field, one behind
-- the other. `codec/audit.rs` has the format.
local log, noted, note = flags % 16 >= 8 and table.remove(KEYS), {}, nil
if log then
  -- As ids are shown: the core's `ClaimId`.
  local function hint(id)
    return id == '' and id or sub(id, 1, math.min(6, math.floor(#id / 2))) .. '…'
  end
  -- The kind says what the numbers `one` and `other` mean; `text` is another claim's id, or of 'k'
  -- a client. A body is the claim's; what only some have, a secret above all, is left out.
  note = function(kind, key, at, token, arrival, one, other, id, body, text)
    local shown, ends = hint(id), 2
    text = kind == 'k' and text or hint(text or '')
    if body ~= '' then
      local _
      _, _, _, _, ends = unpack_from('<Bc0I4Bc0Bc0', body, 10)
    end
    noted[#noted + 1] = pack('<BdddddBc0I2c0I2c0I2c0', byte(kind), at, token, arrival, one, other, #shown,
      shown, #text, text, #key, key, ends - 2, sub(body, 2, ends - 1))
  end
end

-- Forgets what was noted since: it was not written.
local function forget_noted(count)
  for last = #noted, count + 1, -1 do
    noted[last] = nil
  end
end
