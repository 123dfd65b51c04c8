-- Marker::admit: whether this server may vote, or the answer that says why not.
--
-- The marker: until f64 · quarantine f64 · run id text · set text
local function admit(run, set, quarantine)
  local marker = call('MGET', KEYS[2])[1]
  if marker then
    local ends, known_quarantine, known_run, known_set = struct.unpack('<ddBc0Bc0', marker)
    if known_set ~= set or known_quarantine ~= quarantine then
      return struct.pack('<Bd', 8, now)
    elseif known_run == run then
      if ends > now then
        return struct.pack('<Bdd', 7, now, ends - now)
      end
      return nil
    end
  end
  call('SET', KEYS[2], struct.pack('<ddBc0Bc0', now + quarantine, quarantine, #run, run, #set, set))
  if quarantine <= 0 then
    return nil
  end
  return struct.pack('<Bdd', 7, now, quarantine)
end
