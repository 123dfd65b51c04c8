-- Raises the deadline of a claim; never lowers it. The twin of `Queue::renew`.
-- Works when the memory is full.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  claim id
-- ARGV[2]  TTL, in microseconds
-- ARGV[3]  flags: 4 the count of PUBLISH can be believed
-- ARGV[4]  retention, in microseconds
--
-- Returns  {1, at, arrival, token or 0, position, deadline, blocked until or 0}  standing
--          {3, at}                                                               gone
--          or the error LHTYPE, LHVERSION
-- include open.lua
local id, retention = ARGV[1], ARGV[4] + 0

-- The short path: it holds, and nobody else is there.
if raw and claim_size > 0 then
  local deadline, since, holder = struct.unpack('<I8I8Bc0', raw, 47)
  if holder == id and deadline > now then
    local raised = now + ARGV[2]
    if deadline < raised then deadline = raised end
    if furthest < deadline then furthest = deadline end
    local record = struct.pack('<c3I8I8I8I8I8BI2I8', 'lh\1', clock, offset, last_token, last_arrival, furthest,
      buried_count, claim_size, deadline) .. string.sub(raw, 55)
    local keep = math.ceil((furthest - now + retention) / 1000)
    if redis.pcall('SET', key, record, 'PX', keep).err then
      redis.call('PEXPIRE', key, keep)
      redis.call('SET', key, record, 'PX', keep)
    end
    return {1, now, last_arrival, last_token, 0, deadline, 0}
  end
end

-- include common.lua
local failed = open(id)
if failed then
  return failed
end
local ttl = ARGV[2] + 0
local claim = live(id)
promote()
return finish(claim and raise(claim, ttl, ttl) or {3, now}, true, retention, ARGV[3] == '4')
