-- Leaves the queue, holding or waiting; unless settled, the id stays released.
-- The twin of `Queue::release`. Works when the memory is full.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  claim id
-- ARGV[2]  flags: 1 the step hands on to the next in line, 2 settled: no claim
--          with this id can still be under way, 4 the count of PUBLISH can be
--          believed
-- ARGV[3]  retention, in microseconds
--
-- Returns  4, at, 1 if it held else 0  released
--          5, at                       absent
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION
-- include open.lua
local id, flags, retention = ARGV[1], ARGV[2] + 0, ARGV[3] + 0
local settled = flags % 4 >= 2

-- The short path: it holds, nobody else is there, and nothing is to be remembered.
if settled and claim_size > 0 then
  local deadline, _, holder = struct.unpack('<ddBc0', raw, 55)
  if holder == id and deadline > now then
    local keep = furthest - now
    keep = keep > 0 and keep + retention or retention
    local extend = expires < clock + keep - retention / 16
    if extend then expires = clock + keep end
    -- Queue::forget_buried
    local from = 55 + claim_size
    while buried_count > 0 do
      local forget, size = struct.unpack('<dB', raw, from)
      if forget > now then
        break
      end
      from = from + 9 + size
      buried_count = buried_count - 1
    end
    local record = struct.pack('<BBBddddddBI2', 108, 104, 1, clock, offset, last_token, last_arrival, furthest, expires,
      buried_count, 0)
    if buried_count > 0 then
      record = record .. string.sub(raw, from)
    end
    local done
    if extend then
      done = redis.pcall('SET', key, record, 'PX', math.ceil(keep / 1000))
    else
      done = redis.pcall('SET', key, record, 'KEEPTTL')
    end
    if done.err then
      call('PEXPIRE', key, math.ceil(keep / 1000))
      call('SET', key, record, 'KEEPTTL')
    end
    return struct.pack('<Bdd', 4, now, 1)
  end
end

-- include common.lua
local failed = open(id)
if failed then
  return failed
end
local claim = live(id)
local answer, held = {5, now}, false
if claim then
  held = claim.token > 0
  answer = {4, now, held and 1 or 0}
  remove(claim)
end
if not settled then
  bury(id)
end
forget_buried()
if flags % 2 == 1 or not held then
  promote()
elseif waiting > 0 then
  -- Queue::tell_vacant
  tell_next(find(first_waiting), now)
end
return finish(answer, true, retention, flags >= 4)
