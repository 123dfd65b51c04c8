-- Raises the deadline of a claim; never lowers it. The twin of `Queue::renew`.
-- Works when the memory is full.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  claim id
-- ARGV[2]  TTL, in microseconds
-- ARGV[3]  flags: 4 the count of PUBLISH can be believed
-- ARGV[4]  retention, in microseconds
--
-- Returns  1, at, arrival, token or 0, position, deadline, blocked until or 0  standing
--          3, at                                                               gone
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION
-- include open.lua
local id, retention = ARGV[1], ARGV[4] + 0

-- The short path: it holds, and nobody else is there.
if raw and claim_size > 0 then
  local deadline, _, holder = struct.unpack('<ddBc0', raw, 55)
  if holder == id and deadline > now then
    local raised = now + ARGV[2]
    if deadline < raised then deadline = raised end
    if furthest < deadline then furthest = deadline end
    local keep = furthest - now + retention
    local extend = expires < clock + keep - retention / 16
    if extend then expires = clock + keep end
    local record = struct.pack('<BBBddddddBI2d', 108, 104, 1, clock, offset, last_token, last_arrival, furthest, expires,
      buried_count, claim_size, deadline) .. string.sub(raw, 63)
    local millis = math.ceil(keep / 1000)
    local done
    if extend then
      done = redis.pcall('SET', key, record, 'PX', millis)
    else
      done = redis.pcall('SET', key, record, 'KEEPTTL')
    end
    if done.err then
      call('PEXPIRE', key, millis)
      call('SET', key, record, 'PX', millis)
    end
    return struct.pack('<Bdddddd', 1, now, last_arrival, last_token, 0, deadline, 0)
  end
end

-- include claims.lua
-- include queue.lua
-- include record.lua
local failed = open(id)
if failed then
  return failed
end
local ttl = ARGV[2] + 0
local claim = live(id)
promote()
return finish(claim and raise(claim, ttl, ttl) or {3, now}, true, retention, ARGV[3] == '4')
