-- Part 3 of 3, the record: how it is read, written, and who hears of it.

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
