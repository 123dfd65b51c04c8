-- The record of `key`, as far as every step needs it.
--
-- `record.rs` documents the record. Nothing is written before a step has been
-- worked out in full, so that a script that fails has changed nothing.

-- MGET answers nil for a key of another type where GET would fail, and failed
-- calls show up in the server's statistics.
local raw = call('MGET', key)[1]
local absent = not raw and call('EXISTS', key) == 0
local last_seen, offset, last_token, last_arrival, furthest, expires, buried_count, claim_size = 0, 0, 0, 0, 0, 0, 0, 0
if raw then
  if #raw < 54 then
    return {err = 'LHTYPE string'}
  end
  local l, h, version
  l, h, version, last_seen, offset, last_token, last_arrival, furthest, expires, buried_count, claim_size =
    struct.unpack('<BBBddddddBI2', raw)
  if l ~= 108 or h ~= 104 or version > 31 then
    return {err = 'LHTYPE string'}
  elseif version ~= 1 then
    return {err = 'LHVERSION ' .. version}
  end
end

-- Queue::now: the store's time never goes back for a key.
if clock < last_seen then
  offset = offset + last_seen - clock
end
local now = clock + offset
if now > FURTHEST then
  return too_late()
end
