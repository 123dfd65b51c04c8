-- Joins the queue of a key, or finds itself where it already stands.
-- The twin of `Queue::claim`.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  claim id
-- ARGV[2]  lease TTL, in microseconds
-- ARGV[3]  waiter TTL, in microseconds
-- ARGV[4]  flags: 1 it stays when it cannot be granted at once, 2 it may pass
--          those who wait, 4 the count of PUBLISH can be believed, and the way
-- ARGV[5]  retention, in microseconds
-- ARGV[6]  the body: capacity, weight, inbox and owner, and perhaps the owner's secret, the
--          minimum hold and a note, packed (see record.rs)
--
-- Returns  1, at, arrival, token or 0, position, deadline, blocked until or 0  standing
--          2, at, blocked until                                                busy
--          3, at                                                               gone
--          9, at                                                               taken
--          6, at, permits in use or -1 for a lock                              mismatch
--          12, at, until                                                       quarantined
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION, OOM
local key, flags = KEYS[1], ARGV[4] + 0
-- include time.lua
-- include way.lua
-- include open.lua
local id, retention = ARGV[1], ARGV[5] + 0

-- The short path: nobody holds or waits, and there is no minimum hold.
local traits = string.byte(ARGV[6])
if traits % 16 < 8 and not in_cluster
  and closed_for <= 0
  and (absent or (raw and claim_size == 0 and not (buried_count > 0 and string.find(raw, id, 55, true)))) then
  local deadline = now + ARGV[2]
  local token, arrival = last_token + 1, last_arrival + 1
  if token < clock then token = clock end
  if arrival < clock then arrival = clock end
  if furthest < deadline then furthest = deadline end
  local keep = furthest - now + retention
  local extend = expires < clock + keep - retention / 16
  if extend then expires = clock + keep end
  local record = struct.pack('<BBBddddddBI2ddBc0', 108, 104, 1, clock, offset, token, arrival, furthest, expires,
    buried_count, 17 + #id + #ARGV[6], deadline, now, #id, id) .. ARGV[6]
  if buried_count > 0 then
    record = record .. string.sub(raw, 55)
  end
  local done
  if extend then
    done = redis.pcall('SET', key, record, 'PX', math.ceil(keep / 1000))
  else
    done = redis.pcall('SET', key, record, 'KEEPTTL')
  end
  if done.err then
    return done
  end
  return struct.pack('<Bdddddd', 1, now, arrival, token, 0, deadline, 0)
end

-- The same in a cluster, where the record is a hash.
if in_cluster and not raw and traits % 16 < 8 then
  local free, fresh = absent, absent
  if not fresh then
    local fields = redis.pcall('HMGET', key, ' head', ' released')
    local head = fields[1]
    if head and #head > 54 and string.sub(head, 1, 3) == 'lh\1' then
      local _, granted, waiting, watched
      last_seen, offset, last_token, last_arrival, furthest, expires, buried_count, _, _, _, granted, waiting, watched =
        struct.unpack('<ddddddBdddddd', head, 4)
      free = clock >= last_seen and clock + offset <= FURTHEST and granted + waiting + watched == 0
        and not (buried_count > 0 and string.find(fields[2], id, 1, true))
    end
  end
  if free then
    local at = clock + offset
    local deadline, of, weight = at + ARGV[2], struct.unpack('<I4I4', ARGV[6], 2)
    local token, arrival = last_token + 1, last_arrival + 1
    if token < clock then token = clock end
    if arrival < clock then arrival = clock end
    if furthest < deadline then furthest = deadline end
    local keep = furthest - at + retention
    local extend = expires < clock + keep - retention / 16
    if extend then expires = clock + keep end
    local head = struct.pack('<BBBddddddBdddddddddBc0Bc0BB', 108, 104, 1, clock, offset, token, arrival, furthest, expires,
      buried_count, of > 0 and of or -1, weight, deadline, 1, 0, 0, 0, 0, 0, #id, id, #id, id, 0, 0)
    local claim = struct.pack('<BBdddd', 0, 0, arrival, token, deadline, at) .. ARGV[6]
    local done
    if fresh then
      done = redis.pcall('HSET', key, ' head', head, id, claim, ' released', '')
    else
      done = redis.pcall('HSET', key, ' head', head, id, claim)
    end
    if type(done) == 'table' and done.err then
      return done
    end
    if extend then
      call('PEXPIRE', key, math.ceil(keep / 1000))
    end
    return struct.pack('<Bdddddd', 1, at, arrival, token, 0, deadline, 0)
  end
end

-- The short path in a queue: a lock is held, nobody has lapsed, and the claim
-- joins the tail; it has no owner who may hold already. The rest of this script says the same at length.
if not raw and not absent and flags % 4 == 1 and traits % 8 < 4 and string.sub(ARGV[6], 2, 5) == '\0\0\0\0'
  and closed_for <= 0
then
  local fields = redis.pcall('HMGET', key, ' head', id)
  local head = fields[1]
  if head and not fields[2] and #head > 54 and string.sub(head, 1, 3) == 'lh\1' then
    local seen, past, token, tail, far, ends, buried, bears, used, earliest, granted, waiting, watched,
      arrival, deadline, weight, first_granted, last_granted, first, last =
      struct.unpack('<ddddddBdddddddddBc0Bc0Bc0Bc0', head, 4)
    local at = clock + past
    local ours, until_ = struct.unpack('<I4', ARGV[6], 6), at + ARGV[3]
    if waiting == 0 then
      weight = ours
    end
    if far < until_ then far = until_ end
    -- After a quarantine one who waits may be the holder's: see Queue::catch_up.
    if clock >= seen and at <= FURTHEST and bears == -1 and used + weight > 1048576 and at < earliest
      and not (gated and waiting > 0)
      and (waiting == 0 or deadline > at) and ends >= clock + far - at + retention * 15 / 16
      and (buried == 0 or not string.find(call('HGET', key, ' released'), id, 1, true)) then
      tail = tail + 1
      local before = waiting > 0 and call('HGET', key, last)
      if not before then
        first, arrival, deadline = id, tail, until_
      end
      local claim = struct.pack('<BBc0dddd', 0, #last, last, tail, 0, until_, at) .. ARGV[6]
      head = struct.pack('<BBBddddddBdddddddddBc0Bc0Bc0Bc0', 108, 104, 1, clock, past, token, tail, far, ends, buried,
        bears, used, earliest, granted, waiting + 1, watched, arrival, deadline, weight,
        #first_granted, first_granted, #last_granted, last_granted, #first, first, #id, id)
      local done
      if before then
        before = struct.pack('<Bc0', #id, id) .. string.sub(before, 2 + string.byte(before))
        done = redis.pcall('HSET', key, ' head', head, id, claim, last, before)
      else
        done = redis.pcall('HSET', key, ' head', head, id, claim)
      end
      if type(done) == 'table' and done.err then
        return done
      end
      local position = tail - arrival + 1
      if position > waiting + 1 then position = waiting + 1 end
      return struct.pack('<Bdddddd', 1, at, tail, 0, position, until_, earliest)
    end
  end
end

-- include state.lua
local function step()
-- include queue.lua
-- include join.lua
  local failed = open(id)
  if failed then
    return failed
  end
  local answer, must = join(id, ARGV[6], ARGV[2] + 0, ARGV[3] + 0, flags % 2 >= 1, flags % 4 >= 2)
  return finish(answer, must, retention, flags % 8 >= 4)
end
return step()
