-- The twin of `Queue` in leasehold-core/src/queue.rs: the same names, the same
-- order, the same answers. Change both or neither.
--
-- Works on the record in memory and writes it once, in `save`. The short paths
-- above it in each script are this code with an empty or single queue put in.
local LOCK = 1048576
local PROMOTED_FLOOR, UNHEARD_CUT, TOMBSTONE_LIFE = 3000000, 1000000, 60000000
local DROPS_PER_STEP, UNHEARD_ROUNDS, TOMBSTONES = 256, 8, 64

-- The head. `capacity` is -1 for a lock, the permits of a semaphore, 0 for none.
local capacity, used, earliest = 0, 0, 0
local granted, first_granted, last_granted = 0, '', ''
local waiting, first_waiting, last_waiting = 0, '', ''
-- What promotion asks of the first waiting claim, so that it need not be read.
local first_arrival, first_deadline, first_weight = 0, 0, 0
local buried = ''

local claims, changed, gone = {}, {}, {}
local is_hash, buried_changed = false, false

local function units()
  return capacity == -1 and LOCK or capacity
end

-- ---- one claim ----

-- `body` is what never changes: mode, inbox, owner.
local function new_claim(id, body)
  local kind, of, weight, inbox = struct.unpack('<BI4I4Bc0', body)
  return {id = id, capacity = kind == 2 and of or -1, weight = weight, inbox = inbox, body = body}
end

local function parse(id, text)
  local next, prev, arrival, token, deadline, since, at = struct.unpack('<Bc0Bc0dddd', text)
  local claim = new_claim(id, string.sub(text, at))
  claim.next, claim.prev, claim.arrival, claim.token = next, prev, arrival, token
  claim.deadline, claim.since = deadline, since
  return claim
end

local function find(id)
  local claim = claims[id]
  if claim == nil then
    local text = is_hash and call('HGET', key, id)
    claim = text and parse(id, text)
    claims[id] = claim
  end
  return claim
end

local function touch(claim)
  changed[claim.id] = claim
end

local function note_first()
  if waiting > 0 then
    local first = find(first_waiting)
    first_arrival, first_deadline, first_weight = first.arrival, first.deadline, first.weight
  end
end

local function set_deadline(claim, deadline)
  claim.deadline = deadline
  if claim.token == 0 and claim.id == first_waiting then
    first_deadline = deadline
  end
  touch(claim)
end

-- ---- the two lists: granted in order of tokens, waiting in order of arrival ----
-- The links beyond the ends of a list are stale: the head says where it ends.

local function bridge(claim, first, last)
  if claim.id ~= first then
    local prev = find(claim.prev)
    prev.next = claim.next
    touch(prev)
  end
  if claim.id ~= last then
    local next = find(claim.next)
    next.prev = claim.prev
    touch(next)
  end
  return claim.id == first and claim.next or first, claim.id == last and claim.prev or last
end

local function unlink(claim)
  if claim.token > 0 then
    used = used - claim.weight
    granted = granted - 1
    if granted == 0 then
      first_granted, last_granted = '', ''
    else
      first_granted, last_granted = bridge(claim, first_granted, last_granted)
    end
  else
    waiting = waiting - 1
    if waiting == 0 then
      first_waiting, last_waiting = '', ''
    else
      local first = first_waiting
      first_waiting, last_waiting = bridge(claim, first_waiting, last_waiting)
      if first ~= first_waiting then
        note_first()
      end
    end
  end
end

local function append(claim, count, first, last)
  claim.next, claim.prev = '', last
  if count == 0 then
    first = claim.id
  else
    local before = find(last)
    before.next = claim.id
    touch(before)
  end
  claims[claim.id] = claim
  gone[claim.id] = nil
  touch(claim)
  return count + 1, first, claim.id
end

-- Queue::remove
local function remove(claim)
  unlink(claim)
  claims[claim.id], changed[claim.id], gone[claim.id] = false, nil, true
end

-- Queue::drop_if_lapsed, and the claim if it is still there
local function live(id)
  local claim = find(id)
  if claim and claim.deadline <= now then
    remove(claim)
    claim = nil
  end
  return claim
end

-- ---- released ids: 8 bytes until when, then the id ----

-- Queue::is_buried. The search comes first; a hit is confirmed entry by entry.
local function is_buried(id)
  if not string.find(buried, id, 1, true) then
    return false
  end
  local at = 1
  while at <= #buried do
    local forget, other
    forget, other, at = struct.unpack('<dBc0', buried, at)
    if other == id and forget > now then
      return true
    end
  end
  return false
end

-- Queue::bury_id
local function bury(id)
  if not is_buried(id) then
    buried = buried .. struct.pack('<dBc0', now + TOMBSTONE_LIFE, #id, id)
    buried_count = buried_count + 1
    buried_changed = true
  end
end

-- Queue::forget_buried
local function forget_buried()
  local at = 1
  while buried_count > 0 do
    local forget, size = struct.unpack('<dB', buried, at)
    if buried_count <= TOMBSTONES and forget > now then
      break
    end
    at = at + 9 + size
    buried_count = buried_count - 1
  end
  if at > 1 then
    buried = string.sub(buried, at)
    buried_changed = true
  end
end

-- ---- what is told ----

local events = {}
local prefix_size = string.find(key, 'lock:', 1, true) - 1
local name = string.sub(key, prefix_size + 6)

-- A line names no claim id; the key comes last, since it may hold spaces.
local function tell(kind, claim, format, ...)
  if claim.inbox ~= '' then
    local line = string.format('1 ' .. kind .. ' %.0f ' .. format, claim.arrival, ...) .. name
    events[#events + 1] = {kind = kind, claim = claim, inbox = claim.inbox, line = line}
  end
end

local function blocked_until()
  return granted == 0 and now or earliest
end

local function tell_next(claim, blocked)
  tell('n', claim, '%.0f %.0f ', blocked, now)
end

-- ---- the rule ----

local actor = ''
local drops_left = DROPS_PER_STEP
local first_before = false

-- Queue::fits
local function fits(weight)
  return capacity == 0 or used + weight <= units()
end

-- Queue::reclaim
local function reclaim()
  if granted == 0 or now < earliest then
    return false
  end
  local soonest, lapsed = nil, {}
  local id = first_granted
  for _ = 1, granted do
    local claim = find(id)
    if claim.deadline > now then
      if not soonest or claim.deadline < soonest then
        soonest = claim.deadline
      end
    elseif drops_left == 0 then
      soonest = earliest
      break
    else
      drops_left = drops_left - 1
      lapsed[#lapsed + 1] = claim
    end
    id = claim.next
  end
  earliest = soonest or 0
  for _, claim in ipairs(lapsed) do
    remove(claim)
  end
  return #lapsed > 0
end

-- Queue::make_room
local function make_room(weight)
  return fits(weight) or (reclaim() and fits(weight))
end

-- Queue::next_token
local function next_token()
  return math.max(last_token + 1, clock)
end

-- Queue::grant
local function grant(claim)
  last_token = next_token()
  claim.token = last_token
  earliest = granted == 0 and claim.deadline or math.min(earliest, claim.deadline)
  used = used + claim.weight
  granted, first_granted, last_granted = append(claim, granted, first_granted, last_granted)
end

-- Queue::promote
local function promote()
  while waiting > 0 do
    if first_deadline <= now then
      if drops_left == 0 then
        return
      end
      drops_left = drops_left - 1
      remove(find(first_waiting))
    elseif not make_room(first_weight) then
      return
    else
      local claim = find(first_waiting)
      unlink(claim)
      claim.deadline = math.max(claim.deadline, now + PROMOTED_FLOOR)
      claim.since = now
      furthest = math.max(furthest, claim.deadline)
      grant(claim)
      if claim.id ~= actor then
        tell('g', claim, '%.0f %.0f %.0f ', claim.token, claim.deadline, now)
      end
    end
  end
end

-- ---- answers ----

-- Queue::standing. Zero stands for none.
local function standing(claim)
  if claim.token > 0 then
    return {1, now, claim.arrival, claim.token, 0, claim.deadline, 0}
  end
  local position = math.min(waiting, claim.arrival - first_arrival + 1)
  return {1, now, claim.arrival, 0, position, claim.deadline, blocked_until()}
end

-- Queue::raise
local function raise(claim, held, waited)
  local alone = granted == 1
  set_deadline(claim, math.max(claim.deadline, now + (claim.token > 0 and held or waited)))
  furthest = math.max(furthest, claim.deadline)
  if claim.token > 0 and alone then
    earliest = claim.deadline
  end
  return standing(claim)
end

-- ---- the record ----

-- Reads the rest of the record. Answers an error if it is not ours.
local function open(id)
  if raw then
    if claim_size > 0 then
      local deadline, since, holder, at = struct.unpack('<ddBc0', raw, 55)
      local claim = new_claim(holder, string.sub(raw, at, 54 + claim_size))
      claim.next, claim.prev, claim.arrival, claim.token = '', '', last_arrival, last_token
      claim.deadline, claim.since = deadline, since
      claims[holder] = claim
      capacity, used, earliest = claim.capacity, claim.weight, deadline
      granted, first_granted, last_granted = 1, holder, holder
    end
    buried = string.sub(raw, 55 + claim_size)
  elseif not absent then
    local fields = redis.pcall('HMGET', key, ' head', ' released', id)
    local head = fields[1]
    if fields.err or not head then
      return {err = 'LHTYPE ' .. call('TYPE', key).ok}
    elseif #head < 54 or not string.find(head, '^lh[%z\1-\31]') then
      return {err = 'LHTYPE hash'}
    elseif string.byte(head, 3) ~= 1 then
      return {err = 'LHVERSION ' .. string.byte(head, 3)}
    end
    is_hash = true
    last_seen, offset, last_token, last_arrival, furthest, expires, buried_count,
      capacity, used, earliest, granted, waiting, first_arrival, first_deadline, first_weight,
      first_granted, last_granted, first_waiting, last_waiting =
      struct.unpack('<ddddddBddddddddBc0Bc0Bc0Bc0', head, 4)
    if clock < last_seen then
      offset = offset + last_seen - clock
    end
    now = clock + offset
    buried = fields[2]
    claims[id] = fields[3] and parse(id, fields[3])
  end
  actor = id
  first_before = waiting > 0 and first_arrival
end

-- Runs a write that may find the memory full. What only lets go or holds on must
-- work even then: after a write that needs no memory, the server lets it pass.
local function write(must, millis, ...)
  local done = redis.pcall(...)
  if type(done) == 'table' and done.err then
    if not must or not string.find(done.err, 'OOM', 1, true) then
      return done
    end
    call('PEXPIRE', key, millis)
    call(...)
  end
end

-- Writes the record: a string while nobody waits and one holds, else a hash
-- until it is empty. `must`: also when the memory is full.
local function save(must, retention)
  local keep = math.max(furthest - now, 0) + retention
  local millis = math.ceil(keep / 1000)
  -- Not at each step: a sixteenth of the retention may go by.
  local extend = expires < clock + keep - retention / 16
  if extend then
    expires = clock + keep
  end
  if granted + waiting == 0 or (not is_hash and granted == 1 and waiting == 0) then
    local part = ''
    if granted == 1 then
      local claim = find(first_granted)
      part = struct.pack('<ddBc0', claim.deadline, claim.since, #claim.id, claim.id) .. claim.body
    end
    local head = struct.pack('<BBBddddddBI2', 108, 104, 1, clock, offset, last_token, last_arrival,
      furthest, expires, buried_count, #part)
    if extend then
      return write(must, millis, 'SET', key, head .. part .. buried, 'PX', millis)
    end
    return write(must, millis, 'SET', key, head .. part .. buried, 'KEEPTTL')
  end

  local fresh = not is_hash
  if fresh and raw then
    -- Claims the right to write before the string is dropped.
    local refused = write(must, millis, 'SETRANGE', key, 0, '')
    if refused then
      return refused
    end
    call('DEL', key)
    for _, claim in pairs(claims) do
      if claim then
        touch(claim)
      end
    end
  end
  local head = struct.pack('<BBBddddddBddddddddBc0Bc0Bc0Bc0', 108, 104, 1, clock, offset,
    last_token, last_arrival, furthest, expires, buried_count, capacity, used, earliest, granted, waiting,
    first_arrival, first_deadline, first_weight, #first_granted, first_granted, #last_granted, last_granted,
    #first_waiting, first_waiting, #last_waiting, last_waiting)
  local fields, count = {' head', head}, 2
  if fresh or buried_changed then
    fields[3], fields[4], count = ' released', buried, 4
  end
  for id, claim in pairs(changed) do
    fields[count + 1] = id
    fields[count + 2] = struct.pack('<Bc0Bc0dddd', #claim.next, claim.next, #claim.prev, claim.prev,
      claim.arrival, claim.token, claim.deadline, claim.since) .. claim.body
    count = count + 2
  end
  for from = 1, count, 1000 do
    local refused = write(must, millis, 'HSET', key, unpack(fields, from, math.min(from + 999, count)))
    if refused then
      return refused
    end
  end
  local dropped = {}
  for id in pairs(gone) do
    dropped[#dropped + 1] = id
  end
  for from = 1, #dropped, 1000 do
    call('HDEL', key, unpack(dropped, from, math.min(from + 999, #dropped)))
  end
  if extend or fresh then
    call('PEXPIRE', key, millis)
  end
  is_hash, raw = true, false
  changed, gone, buried_changed = {}, {}, false
end

-- ---- delivery ----

-- Queue::unheard; `told` are the claims granted in this step.
local function unheard(inbox, told)
  local cut = now + UNHEARD_CUT
  for _, claim in ipairs(told) do
    if claim.inbox == inbox then
      set_deadline(claim, math.min(claim.deadline, cut))
      earliest = math.min(earliest, claim.deadline)
    end
  end
  local heir
  local id = first_waiting
  for _ = 1, math.min(waiting, DROPS_PER_STEP) do
    local claim = find(id)
    if claim.inbox == inbox and claim.deadline > cut then
      set_deadline(claim, cut)
    end
    if not heir and claim.deadline > cut and claim.inbox ~= '' then
      heir = claim
    end
    id = claim.next
  end
  events = {}
  if heir then
    tell_next(heir, blocked_until())
  end
  return events[1]
end

local function publish(inbox, text)
  return call('PUBLISH', string.sub(key, 1, prefix_size) .. 'inbox:' .. inbox, text) > 0
end

-- Tells whoever is next, and those after it while nobody listens. Whether
-- somebody did not.
local function relay(next, rounds, believed)
  local cut = false
  for _ = 1, rounds do
    if not next or publish(next.inbox, next.line) or not believed then
      break
    end
    next = unheard(next.inbox, {})
    cut = true
  end
  return cut
end

-- Queue::deliver, with one message for all that an inbox should hear. Where the
-- count cannot be believed, everything counts as heard.
local function deliver(believed)
  local order, lines, told, next = {}, {}, {}, nil
  for _, event in ipairs(events) do
    if event.kind == 'n' then
      next = next or event
    else
      if not lines[event.inbox] then
        order[#order + 1] = event.inbox
        lines[event.inbox] = event.line
      else
        lines[event.inbox] = lines[event.inbox] .. '\n' .. event.line
      end
      if event.kind == 'g' then
        told[#told + 1] = event.claim
      end
    end
  end
  local cut = false
  for i, inbox in ipairs(order) do
    local text = lines[inbox]
    local both = i == #order and next and next.inbox == inbox
    if both then
      text = text .. '\n' .. next.line
    end
    if not publish(inbox, text) and believed then
      next = unheard(inbox, told)
      cut = true
    elseif both then
      next = nil
    end
  end
  return relay(next, UNHEARD_ROUNDS, believed) or cut
end

-- The end of every step: the hint to whom it concerns (Queue::hint), the record,
-- the pushes, and the answer.
local function finish(answer, must, retention, believed)
  if waiting > 0 and first_before ~= first_arrival and actor ~= first_waiting then
    tell_next(find(first_waiting), blocked_until())
  end
  if granted + waiting == 0 then
    capacity = 0
  end
  local refused = save(must, retention)
  if refused then
    return refused
  end
  if #events > 0 and deliver(believed) then
    save(true, retention)
  end
  return struct.pack('<B' .. string.rep('d', #answer - 1), unpack(answer))
end
