-- Leaves the queue, holding or waiting; unless settled, the id stays released.
-- The twin of `Queue::release`. Works when the memory is full.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  claim id
-- ARGV[2]  flags: 1 the step hands on to the next in line, 2 no claim of this id
--          can be under way (settled), 4 the count of PUBLISH can be believed
-- ARGV[3]  retention, in microseconds
--
-- Returns  {4, at, 1 if it held else 0}  released
--          {5, at}                       absent
--          or the error LHTYPE, LHVERSION
-- include open.lua
local id, retention = ARGV[1], ARGV[3] + 0

-- The short path: it holds, and nobody else is there.
if raw and claim_size > 0 then
  local deadline, _, holder = struct.unpack('<I8I8Bc0', raw, 47)
  if holder == id and deadline > now and not string.find(raw, id, 47 + claim_size, true) then
    -- Queue::bury_id: the oldest make room.
    local from, left = 47 + claim_size, buried_count
    while left > 0 do
      local forget, size = struct.unpack('<I8B', raw, from)
      if left < 64 and forget > now then
        break
      end
      from = from + 9 + size
      left = left - 1
    end
    local record = struct.pack('<c3I8I8I8I8I8BI2', 'lh\1', clock, offset, last_token, last_arrival, furthest, left + 1, 0)
      .. string.sub(raw, from) .. struct.pack('<I8Bc0', now + 60000000, #id, id)
    local keep = furthest - now
    if keep < 0 then keep = 0 end
    keep = math.ceil((keep + retention) / 1000)
    if redis.pcall('SET', key, record, 'PX', keep).err then
      redis.call('PEXPIRE', key, keep)
      redis.call('SET', key, record, 'PX', keep)
    end
    return {4, now, 1}
  end
end

-- include common.lua
local failed = open(id)
if failed then
  return failed
end
local flags = ARGV[2] + 0
local claim = live(id)
local answer, held = {5, now}, false
if claim then
  held = claim.token > 0
  answer = {4, now, held and 1 or 0}
  remove(claim)
end
bury(id)
if flags % 2 == 1 or not held then
  promote()
elseif waiting > 0 then
  -- Queue::tell_vacant
  tell_next(find(first_waiting), now)
end
return finish(answer, true, retention, flags >= 4)
