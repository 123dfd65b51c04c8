-- The record: how it is read and written. Nothing is written before a step has been worked
-- out in full, so that a script that fails has changed nothing.

-- What earlier versions wrote as a string: a sole holder at most, its key's last token and
-- arrival, and released ids.
local function open_earlier()
  local claim_size
  last_seen, offset, last_token, last_arrival, furthest, expires, buried_count, claim_size =
    struct.unpack('<ddddddBI2', raw, 4)
  buried = string.sub(raw, 55 + claim_size)
  if claim_size > 0 then
    local deadline, since, holder, at = struct.unpack('<ddBc0', raw, 55)
    return deadline, since, holder, string.sub(raw, at, 54 + claim_size)
  end
end

-- A claim that holds alone.
local function open_lean()
  local since, deadline, holder, at
  since, last_seen, deadline, last_arrival, holder, at = struct.unpack('<ddddBc0', raw, 4)
  furthest = deadline
  return deadline, since, holder, string.sub(raw, at)
end

local function open_string()
  local version = string.match(raw, '^lh(%z)') or string.match(raw, '^lh([\1-\31])')
  version = version and string.byte(version)
  if not version or #raw < 54 then
    return {err = 'LHTYPE string'}
  elseif version ~= 1 and version ~= 2 then
    return {err = 'LHVERSION ' .. version}
  end
  local of_all = last_token
  local deadline, since, holder, body
  earlier = version == 1
  if earlier then
    deadline, since, holder, body = open_earlier()
  else
    deadline, since, holder, body = open_lean()
  end
  if holder then
    local claim = new_claim(holder, body)
    claim.next, claim.prev, claim.arrival = '', '', last_arrival
    claim.token = version == 1 and last_token or last_arrival
    claim.deadline, claim.since = deadline, since
    claims[holder] = claim
    capacity, used, earliest = claim.capacity, claim.weight, deadline
    granted, first_granted, last_granted = 1, holder, holder
  end
  last_token = math.max(last_token, of_all)
end

local function open_hash(id)
  local fields = redis.pcall('HMGET', key, ' head', ' released', id)
  local head = fields[1]
  if not head then
    if not fields.err and call('EXISTS', key) == 0 then
      return
    elseif string.find(call('MGET', key)[1] or '', '^lq') then
      -- A vote of an earlier version, which had a record of its own.
      return {err = 'LHVERSION votes'}
    end
    return {err = 'LHTYPE ' .. call('TYPE', key).ok}
  elseif #head < 54 or not string.find(head, '^lh[%z\1-\31]') then
    return {err = 'LHTYPE hash'}
  elseif string.byte(head, 3) ~= 1 then
    return {err = 'LHVERSION ' .. string.byte(head, 3)}
  end
  local of_all = last_token
  last_seen, offset, last_token, last_arrival, furthest, expires, buried_count,
    capacity, used, earliest, granted, waiting, watchers, first_arrival, first_deadline, first_weight,
    first_granted, last_granted, first_waiting, last_waiting =
    struct.unpack('<ddddddBdddddddddBc0Bc0Bc0Bc0', head, 4)
  last_token = math.max(last_token, of_all)
  is_hash, buried, claims[id] = true, fields[2], fields[3] and parse(id, fields[3])
end

-- Reads what every step needs, and the claim that it is about. Answers an error if the record
-- is not ours.
local function open(at_key, text, id)
  key, raw, is_hash, earlier = at_key, text, false, false
  last_seen, offset, last_arrival, furthest, expires = 0, 0, 0, 0, 0
  capacity, used, earliest = 0, 0, 0
  granted, first_granted, last_granted = 0, '', ''
  waiting, first_waiting, last_waiting, first_arrival, first_deadline, first_weight = 0, '', '', 0, 0, 0
  claims, changed, gone, siblings, siblings_changed = {}, {}, {}, {}, {}
  buried, buried_count, buried_changed = '', 0, false
  watchers, watching, watching_changed, votes = 0, nil, false, nil
  noted, shortened, drops_left, followers_left, events = false, false, DROPS_PER_STEP, FOLLOWERS_PER_STEP, {}
  if in_cluster then
    last_token = 0
  end
  local failed
  if raw then
    failed = open_string()
  else
    failed = open_hash(id)
  end
  if failed then
    return failed
  end
  -- Queue::now: the store's time never goes back for a key.
  if clock < last_seen then
    offset = offset + last_seen - clock
  end
  now = clock + offset
  if now > FURTHEST then
    return {err = string.format('LHCLOCK %.0f', clock)}
  end
  actor, finder = id, id
  first_before = waiting > 0 and first_arrival
  holder_before = watchers > 0 and first_holder()
  if closed_for > 0 then
    disband(0)
  end
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

-- Whether the record fits the string: nobody waits or watches, one holds since nobody did,
-- and nothing else is to be remembered. A hash stays one until it is empty; and what an earlier
-- version wrote becomes one, since a holder of that version must go on reading its record.
local function fits_string()
  local claim = granted == 1 and not is_hash and not in_cluster and not earlier and find(first_granted)
  return claim and waiting + watchers + buried_count + offset == 0
    and claim.arrival == claim.token and claim.capacity == capacity and not claim.min_hold
end

-- Queue::is_spent. A cluster keeps the last token of a key for a time.
local function is_spent()
  return granted + waiting + buried_count == 0 and (not in_cluster or SPARE == 0)
    and not (votes and votes.void + #votes.callers > 0)
    and (watchers == 0 or #all_watching() == 0)
end

local function save_string(must)
  local claim = find(first_granted)
  local lives = millis(claim.deadline - now + stays)
  return write(must, lives, 'SET', key, struct.pack('<BBBddddBc0', 108, 104, 2, claim.since, clock, claim.deadline,
    claim.token, #claim.id, claim.id) .. claim.body, 'PX', lives)
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
    put_or_drop(' watchers', pack_inboxes(watching, {}))
  end
  if votes and votes.changed then
    put(' votes', table.concat(pack_inboxes(votes.callers, {struct.pack('<d', votes.void)})))
    votes.changed = false
  end
  return fields, count, dropped
end

-- Writes the record. `must`: also when the memory is full.
local function save(must)
  if is_spent() then
    if raw or is_hash then
      call('DEL', key)
    end
    raw, is_hash = false, false
    return
  elseif fits_string() then
    return save_string(must)
  end
  local keep = math.max(furthest - now, 0) + SPARE
  local lives = millis(keep + (granted > 0 and stays or 0))
  local extend = expires < clock + keep - SPARE / 16
  if extend then
    expires = clock + keep
  end
  local fresh = not is_hash
  if fresh and raw then
    -- Claims the right to write before the string is dropped.
    local refused = write(must, lives, 'SETRANGE', key, 0, '')
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
    local refused = write(must, lives, 'HSET', key, unpack(fields, from, math.min(from + 999, count)))
    if refused then
      return refused
    end
  end
  for from = 1, #dropped, 1000 do
    call('HDEL', key, unpack(dropped, from, math.min(from + 999, #dropped)))
  end
  if extend or fresh then
    call('PEXPIRE', key, lives)
  end
  is_hash, raw = true, false
  changed, gone, siblings_changed, buried_changed, watching_changed = {}, {}, {}, false, false
end
