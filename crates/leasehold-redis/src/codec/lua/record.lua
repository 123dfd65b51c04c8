-- The record: how it is read and written.

-- Reads the rest of the record, and the claim that the step is about. Answers an
-- error if the record is not ours.
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
      capacity, used, earliest, granted, waiting, watchers, first_arrival, first_deadline, first_weight,
      first_granted, last_granted, first_waiting, last_waiting =
      struct.unpack('<ddddddBdddddddddBc0Bc0Bc0Bc0', head, 4)
    if clock < last_seen then
      offset = offset + last_seen - clock
    end
    now = clock + offset
    if now > FURTHEST then
      return too_late()
    end
    buried = fields[2]
    claims[id] = fields[3] and parse(id, fields[3])
    holder_before = watchers > 0 and first_holder()
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

-- Whether the record fits the string: nobody waits or watches and at most one
-- holds, whose own capacity is the one in use. A hash stays one until it is empty,
-- and in a cluster always.
local function fits_string()
  if in_cluster then
    return false
  end
  if granted + waiting == 0 then
    return watchers == 0 or #all_watching() == 0
  end
  return not is_hash and watchers == 0 and granted == 1 and waiting == 0
    and find(first_granted).capacity == capacity
end

-- `millis` is until when the key must live, if that is to be written.
local function save_string(must, millis, extend)
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

-- The fields of the hash that have changed, name and value by turns, and the
-- names of those that are gone.
local function changed_fields(fresh)
  local head = struct.pack('<BBBddddddBdddddddddBc0Bc0Bc0Bc0', 108, 104, 1, clock, offset,
    last_token, last_arrival, furthest, expires, buried_count, capacity, used, earliest, granted, waiting, watchers,
    first_arrival, first_deadline, first_weight, #first_granted, first_granted, #last_granted, last_granted,
    #first_waiting, first_waiting, #last_waiting, last_waiting)
  local fields, count, dropped = {' head', head}, 2, {}
  local function put(field, value)
    fields[count + 1], fields[count + 2], count = field, value, count + 2
  end
  local function put_or_drop(field, texts)
    if #texts > 0 then
      put(field, table.concat(texts))
    else
      dropped[#dropped + 1] = field
    end
  end
  if fresh or buried_changed then
    put(' released', buried)
  end
  for id, claim in pairs(changed) do
    put(id, struct.pack('<Bc0Bc0dddd', #claim.next, claim.next, #claim.prev, claim.prev,
      claim.arrival, claim.token, claim.deadline, claim.since) .. claim.body)
  end
  for id in pairs(gone) do
    dropped[#dropped + 1] = id
  end
  for secret in pairs(siblings_changed) do
    local texts = {}
    for at, id in ipairs(siblings[secret]) do
      texts[at] = struct.pack('<Bc0', #id, id)
    end
    put_or_drop(' o' .. secret, texts)
  end
  if watching_changed then
    local texts = {}
    for at, watcher in ipairs(watching) do
      texts[at] = struct.pack('<dBc0', watcher.ends, #watcher.inbox, watcher.inbox)
    end
    put_or_drop(' watchers', texts)
  end
  return fields, count, dropped
end

-- Writes the record. `must`: also when the memory is full.
local function save(must, retention)
  local keep = math.max(furthest - now, 0) + retention
  local millis = math.ceil(keep / 1000)
  -- Not at each step: a sixteenth of the retention may go by.
  local extend = expires < clock + keep - retention / 16
  if extend then
    expires = clock + keep
  end
  if fits_string() then
    return save_string(must, millis, extend)
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
  local fields, count, dropped = changed_fields(fresh)
  for from = 1, count, 1000 do
    local refused = write(must, millis, 'HSET', key, unpack(fields, from, math.min(from + 999, count)))
    if refused then
      return refused
    end
  end
  for from = 1, #dropped, 1000 do
    call('HDEL', key, unpack(dropped, from, math.min(from + 999, #dropped)))
  end
  if extend or fresh then
    call('PEXPIRE', key, millis)
  end
  is_hash, raw = true, false
  changed, gone, siblings_changed, buried_changed, watching_changed = {}, {}, {}, false, false
end
