-- The lean way in a queue, where the record is a hash. Most steps of a busy lock are one of
-- these: the first claim, one more at the tail, the only holder that leaves and hands the key on
-- to the first in line, or to nobody. Each says the same as the queue at length; whatever else
-- there is to be thought of is left to that.
local LEAN_LOCK, LEAN_FLOOR = 1048576, 3000000

-- Answers what to say; and, where a grant was told to nobody who hears, the inbox, the claim,
-- and whether it was the next in line that did not.
local function in_queue(key, verb, marks, command)
  local id, body_at = unpack_from('<Bc0', command, verb == 1 and 19 or 3)
  local fields = redis.pcall('HMGET', key, ' head', id, ' released')
  local head, mine, released = fields[1], fields[2], fields[3]
  if not head or #head < 55 or sub(head, 1, 3) ~= 'lh\1' or (verb == 1) == (mine and true or false) then
    return
  end
  local seen, past, token, tail, far, ends, buried, bears, used, earliest, granted, waiting, watched,
    arrival, deadline, weight, first_granted, last_granted, first, last =
    unpack_from('<ddddddBdddddddddBc0Bc0Bc0Bc0', head, 4)
  local now = clock + past
  if token < last_token then token = last_token end
  if clock < seen or now > FURTHEST or watched > 0 then
    return
  end

  local function write(...)
    return redis.pcall('HSET', key, ' head', pack('<BBBddddddBdddddddddBc0Bc0Bc0Bc0', 108, 104, 1, clock, past, token,
      tail, far, ends, buried, bears, used, earliest, granted, waiting, 0, arrival, deadline, weight,
      #first_granted, first_granted, #last_granted, last_granted, #first, first, #last, last), ...)
  end
  -- Whether the key lives long enough as it is.
  local function lives()
    return ends >= clock + far - now + SPARE * 15 / 16
  end

  if verb == 1 then
    if closed_for > 0 or (buried > 0 and string.find(released, id, 1, true)) then
      return
    end
    local lease_ttl, waiter_ttl = unpack_from('<dd', command, 3)
    local _, of, ours = unpack_from('<BI4I4', command, body_at)
    if granted + waiting == 0 then
      token = token + 1
      if token < clock then token = clock end
      tail = tail + 1
      if tail < token then tail = token end
      earliest = now + lease_ttl
      if far < earliest then far = earliest end
      if not lives() then
        return
      end
      bears, used, granted, first_granted, last_granted = of > 0 and of or -1, ours, 1, id, id
      arrival, deadline, weight = 0, 0, 0
      local done = write(id, pack('<BBdddd', 0, 0, tail, token, earliest, now) .. sub(command, body_at))
      if type(done) == 'table' then
        return done
      end
      last_token = token
      return pack('<Bdddddd', 1, now, tail, token, 0, earliest, 0)
    end
    -- It waits, has no owner who may hold already, and nobody before it has lapsed. After a
    -- quarantine one who waits may be the holder's: see Queue::catch_up.
    local until_ = now + waiter_ttl
    if waiting == 0 then weight = ours end
    if far < until_ then far = until_ end
    if marks ~= 1 or bears ~= -1 or of > 0 or used + weight <= LEAN_LOCK or now >= earliest
      or (waiting > 0 and (gated or deadline <= now)) or not lives() then
      return
    end
    tail = tail + 1
    local text = pack('<BBc0dddd', 0, #last, last, tail, 0, until_, now) .. sub(command, body_at)
    local before, done = waiting > 0 and last, nil
    if not before then
      first, arrival, deadline = id, tail, until_
    end
    waiting, last = waiting + 1, id
    if before then
      local known = call('HGET', key, before)
      done = write(id, text, before, pack('<Bc0', #id, id) .. sub(known, 2 + byte(known)))
    else
      done = write(id, text)
    end
    if type(done) == 'table' then
      return done
    end
    local position = tail - arrival + 1
    return pack('<Bdddddd', 1, now, tail, 0, position < waiting and position or waiting, until_, earliest)
  end

  -- It is settled and hands on. There is no minimum hold, and no released id to be forgotten:
  -- the oldest comes first.
  local _, _, _, _, ours, _, traits = unpack_from('<Bc0Bc0ddddB', mine)
  if marks % 4 ~= 3 or granted ~= 1 or first_granted ~= id or ours <= now or traits % 16 >= 8
    or (buried > 0 and unpack_from('<d', released) <= now) then
    return
  end
  local answer = pack('<Bdd', 4, now, 1)
  if waiting == 0 then
    if not in_cluster and buried == 0 then
      call('DEL', key)
    elseif in_cluster and lives() then
      -- Letting go first: then the write may pass even if the memory is full.
      call('HDEL', key, id)
      bears, used, earliest, granted, first_granted, last_granted = 0, 0, 0, 0, '', ''
      arrival, deadline, weight, first, last = 0, 0, 0, '', ''
      write()
    else
      return
    end
    if last_token < token then last_token = token end
    return answer
  end
  local heir = closed_for <= 0 and bears == -1 and weight == LEAN_LOCK and call('HGET', key, first)
  if not heir then
    return
  end
  local next, _, heirs, _, lapses, _, heir_at = unpack_from('<Bc0Bc0dddd', heir)
  local theirs, _, _, inbox = unpack_from('<BI4I4Bc0', heir, heir_at)
  earliest = now + LEAN_FLOOR
  if earliest < lapses then earliest = lapses end
  if far < earliest then far = earliest end
  -- It has neither an owner with other claims nor a minimum hold.
  if theirs % 16 >= 4 or lapses <= now or not lives() then
    return
  end
  token = token + 1
  if token < clock then token = clock end
  first_granted, last_granted, used, waiting = first, first, LEAN_LOCK, waiting - 1
  local second_inbox = ''
  if waiting > 0 then
    first = next
    local _
    _, _, arrival, _, deadline, _, _, _, weight, second_inbox =
      unpack_from('<Bc0Bc0ddddBI4I4Bc0', call('HGET', key, first))
    if deadline <= now then
      return
    end
  else
    arrival, deadline, weight, first, last = 0, 0, 0, '', ''
  end
  call('HDEL', key, id)
  write(first_granted, pack('<BBdddd', 0, 0, heirs, token, earliest, now) .. sub(heir, heir_at))
  last_token = token

  -- Queue::deliver
  local prefix, name = string.match(key, '^(.-)lock:(.*)$')
  local text, hint
  if inbox ~= '' then
    local said = string.format('g %.0f %.0f %.0f ', heirs, token, now)
    text = '2 ' .. said .. prove(first_granted, said .. name) .. ' ' .. name
  end
  if second_inbox ~= '' then
    hint = string.format('2 n %.0f %.0f %.0f ', arrival, earliest, now) .. name
  end
  if text and hint and inbox == second_inbox then
    text, hint = text .. '\n' .. hint, nil
  end
  if text and not publish(prefix, inbox, text) and believed then
    return answer, inbox, first_granted
  elseif hint and not publish(prefix, second_inbox, hint) and believed then
    return answer, second_inbox
  end
  return answer
end
