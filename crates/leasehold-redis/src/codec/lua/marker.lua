-- Marker::admit: for how long this server grants nothing, 0 if it does; or an error:
-- LHFOREIGN where it belongs to another set, or why the marker could not be written.
--
-- `looks`: nothing is written; where a quarantine would have to start, the server is
-- as closed as if it had (`Marker::look`).
--
-- The marker: until f64 · terms. The terms: quarantine f64 · run id text · set text
local function admit(marker_key, terms, looks)
  local marker = call('MGET', marker_key)[1]
  if marker and string.sub(marker, 9) == terms then
    return math.max(struct.unpack('<d', marker) - clock, 0)
  end
  local quarantine, _, set = struct.unpack('<dBc0Bc0', terms)
  if marker then
    local known_quarantine, _, known_set = struct.unpack('<dBc0Bc0', marker, 9)
    if known_set ~= set or known_quarantine ~= quarantine then
      return {err = 'LHFOREIGN settings'}
    end
  end
  if looks then
    return quarantine
  end
  local done = redis.pcall('SET', marker_key, struct.pack('<d', clock + quarantine) .. terms)
  return done.err and done or quarantine
end
