-- The lean way in a queue, where the record is a hash. Most steps of a busy lock are one of
-- these: the first claim, one more at the tail, the only holder that leaves and hands the key on
-- to the first in line, or to nobody. Each says the same as the queue at length; whatever else
-- there is to be thought of is left to that.
local LEAN_LOCK, LEAN_FLOOR = 1048576, 3000000

-- What is pushed when a claim is granted and another is next: Queue::deliver. Answers the inbox
-- that does not hear, and the id of the claim if it was its grant.
local function tell_heir(key, now, heir, second)
  local prefix, name = string.match(key, '^(.-)lock:(.*)$')
  local text, hint
  if heir.inbox ~= '' then
    local said = string.format('g %.0f %.0f %.0f ', heir.arrival, heir.token, now)
    text = '2 ' .. said .. prove(heir.id, said .. name) .. ' ' .. name
  end
  if second then
    hint = string.format('2 n %.0f %.0f %.0f ', second.arrival, heir.deadline, now) .. name
    if text and heir.inbox == second.inbox then
      text, hint = text .. '\n' .. hint, nil
    end
  end
  if text and not publish(prefix, heir.inbox, text) and believed then
    return heir.inbox, heir.id
  elseif hint and not publish(prefix, second.inbox, hint) and believed then
    return second.inbox
  end
end

-- Answers what to say; and, where a push went to nobody who hears, what `tell_heir` answers.
local function in_queue(key, verb, marks, command)
  local id, body_at = unpack_from('<Bc0', command, verb == 1 and 19 or 3)
  local found = redis.pcall('HMGET', key, ' head', id, ' released')
  local head, mine, released = found[1], found[2], found[3]
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
  -- What is written besides the head: fields and their values.
  local answer, field, value, before, before_value, heir, second

  if verb == 1 then
    if closed_for > 0 or (buried > 0 and string.find(released, id, 1, true)) then
      return
    end
    local lease_ttl, waiter_ttl = unpack_from('<dd', command, 3)
    local _, of, ours = unpack_from('<BI4I4', command, body_at)
    local body = sub(command, body_at)
    field = id
    if granted + waiting == 0 then
      token = token + 1
      if token < clock then token = clock end
      tail = tail + 1
      if tail < token then tail = token end
      earliest = now + lease_ttl
      if far < earliest then far = earliest end
      bears, used, granted, first_granted, last_granted = of > 0 and of or -1, ours, 1, id, id
      arrival, deadline, weight = 0, 0, 0
      value = pack('<BBdddd', 0, 0, tail, token, earliest, now) .. body
      answer = pack('<Bdddddd', 1, now, tail, token, 0, earliest, 0)
    else
      -- It waits, has no owner who may hold already, and nobody before it has lapsed. After a
      -- quarantine one who waits may be the holder's: see Queue::catch_up.
      local until_ = now + waiter_ttl
      if waiting == 0 then weight = ours end
      if marks ~= 1 or bears ~= -1 or of > 0 or used + weight <= LEAN_LOCK or now >= earliest
        or (waiting > 0 and (gated or deadline <= now)) then
        return
      end
      if far < until_ then far = until_ end
      tail = tail + 1
      value = pack('<BBc0dddd', 0, #last, last, tail, 0, until_, now) .. body
      if waiting > 0 then
        before, before_value = last, call('HGET', key, last)
        before_value = pack('<Bc0', #id, id) .. sub(before_value, 2 + byte(before_value))
      else
        first, arrival, deadline = id, tail, until_
      end
      waiting, last = waiting + 1, id
      local position = tail - arrival + 1
      if position > waiting then position = waiting end
      answer = pack('<Bdddddd', 1, now, tail, 0, position, until_, earliest)
    end
  else
    -- It is settled and hands on. There is no minimum hold, and no released id to be forgotten:
    -- the oldest comes first.
    local _, _, _, _, ours, _, traits = unpack_from('<Bc0Bc0ddddB', mine)
    if marks % 4 ~= 3 or granted ~= 1 or first_granted ~= id or ours <= now or traits % 16 >= 8
      or (buried > 0 and unpack_from('<d', released) <= now) then
      return
    end
    answer = pack('<Bdd', 4, now, 1)
    if waiting == 0 then
      if not in_cluster then
        if buried > 0 then
          return
        end
        call('DEL', key)
        if last_token < token then last_token = token end
        return answer
      end
      bears, used, earliest, granted, first_granted, last_granted = 0, 0, 0, 0, '', ''
      arrival, deadline, weight, first, last = 0, 0, 0, '', ''
    else
      field = first
      local text = closed_for <= 0 and bears == -1 and weight == LEAN_LOCK and call('HGET', key, first)
      if not text then
        return
      end
      local next, _, heirs, _, lapses, _, heir_at = unpack_from('<Bc0Bc0dddd', text)
      local theirs, _, _, inbox = unpack_from('<BI4I4Bc0', text, heir_at)
      -- It has neither an owner with other claims nor a minimum hold.
      if theirs % 16 >= 4 or lapses <= now then
        return
      end
      earliest = now + LEAN_FLOOR
      if earliest < lapses then earliest = lapses end
      if far < earliest then far = earliest end
      token = token + 1
      if token < clock then token = clock end
      heir = {id = first, inbox = inbox, arrival = heirs, token = token, deadline = earliest}
      value = pack('<BBdddd', 0, 0, heirs, token, earliest, now) .. sub(text, heir_at)
      first_granted, last_granted, used, waiting = first, first, LEAN_LOCK, waiting - 1
      if waiting > 0 then
        first = next
        local _, theirs_inbox
        _, _, arrival, _, deadline, _, _, _, weight, theirs_inbox =
          unpack_from('<Bc0Bc0ddddBI4I4Bc0', call('HGET', key, first))
        if deadline <= now then
          return
        end
        second = theirs_inbox ~= '' and {inbox = theirs_inbox, arrival = arrival}
      else
        arrival, deadline, weight, first, last = 0, 0, 0, '', ''
      end
    end
  end

  -- The key has to live long enough as it is.
  if ends < clock + far - now + SPARE * 15 / 16 then
    return
  end
  if verb == 3 then
    -- Letting go first: then the write may pass even if the memory is full.
    call('HDEL', key, id)
  end
  head = pack('<BBBddddddBdddddddddBc0Bc0Bc0Bc0', 108, 104, 1, clock, past, token, tail, far, ends, buried, bears,
    used, earliest, granted, waiting, 0, arrival, deadline, weight,
    #first_granted, first_granted, #last_granted, last_granted, #first, first, #last, last)
  local done
  if before then
    done = redis.pcall('HSET', key, ' head', head, field, value, before, before_value)
  elseif field then
    done = redis.pcall('HSET', key, ' head', head, field, value)
  else
    done = redis.pcall('HSET', key, ' head', head)
  end
  if type(done) == 'table' then
    return done
  end
  if last_token < token then last_token = token end
  if heir then
    return answer, tell_heir(key, now, heir, second)
  end
  return answer
end
