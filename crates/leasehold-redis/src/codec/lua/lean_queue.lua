-- The lean way in a queue, where the record is a hash. Most steps of a busy lock are one of
-- these: the first claim, one more at the tail, the only holder that leaves and hands the key on
-- to the first in line, or to nobody. Each says the same as the queue at length; whatever else
-- there is to be thought of is left to that.
local LEAN_LOCK, LEAN_FLOOR, LEAN_RUN = 1048576, 3000000, 1024

-- What is pushed when a claim is granted and another is next: Queue::deliver. Answers the inbox
-- that does not hear, and the claim if it was its grant.
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
    return heir.inbox, heir
  elseif hint and not publish(prefix, second.inbox, hint) and believed then
    return second.inbox
  end
end

-- The queue that the steps before were about, as it is now: its key, its head, the released ids,
-- the claims that were read or changed (false: not there), those that have to be written, and the
-- steps that are answered by it. It is written once, when another record is needed.
local key_open, head, released, claims, changed, steps_open, token_before, entries_first
local HEAD = '<ddddddBdddddddddBc0Bc0Bc0Bc0'

local function read_queue(key, at)
  local ids = {' head', ' released'}
  for step = at, steps do
    local verb = byte(ARGV[step + 2])
    if KEYS[step] == key and (verb == 1 or verb == 3) then
      ids[#ids + 1] = unpack_from('<Bc0', ARGV[step + 2], verb == 1 and 19 or 3)
    end
  end
  local found = redis.pcall('HMGET', key, unpack(ids))
  local text = found[1]
  if not text or #text < 55 or sub(text, 1, 3) ~= 'lh\1' then
    return
  end
  head, released, claims, changed, steps_open = {unpack_from(HEAD, text, 4)}, found[2], {}, {}, {}
  for number = 3, #ids do
    claims[ids[number]] = found[number]
  end
  key_open, token_before, entries_first = key, last_token, entries and #entries
end

local function text_of(id)
  if claims[id] == nil then
    claims[id] = call('HGET', key_open, id)
  end
  return claims[id]
end

write_queue = function()
  local key, gone, there, written = key_open, {}, {}, {}
  key_open = nil
  if not key or #changed == 0 then
    return
  end
  -- Letting go first: then the write may pass even if the memory is full. And what is refused takes
  -- only its own notes with it.
  if #spent > 0 then
    call('DEL', unpack(spent))
    spent = {}
  end
  for _, id in ipairs(changed) do
    local text = claims[id]
    if not text then
      gone[#gone + 1] = id
    elseif not written[id] then
      written[id], there[#there + 1], there[#there + 2] = true, id, text
    end
  end
  local done = #gone > 0 and redis.pcall('HDEL', key, unpack(gone))
  local first_granted, last_granted, first, last = unpack(head, 17)
  local ids = pack('<Bc0Bc0Bc0Bc0', #first_granted, first_granted, #last_granted, last_granted, #first, first, #last, last)
  done = type(done) == 'table' and done or redis.pcall('HSET', key, ' head',
    pack('<BBBddddddBddddddddd', 108, 104, 1, unpack(head, 1, 16)) .. ids, unpack(there))
  if type(done) == 'table' then
    last_token = token_before
    if note then
      forget_entries(entries_first)
    end
    for _, step in ipairs(steps_open) do
      answers[step] = done
    end
    return done
  end
end

-- Answers what to say; and, where a push went to nobody who hears, what `tell_heir` answers.
local function in_queue(at, key, verb, marks, command)
  if key_open ~= key then
    write_queue()
    read_queue(key, at)
  end
  local id, body_at = unpack_from('<Bc0', command, verb == 1 and 19 or 3)
  local mine = key_open and text_of(id)
  if not key_open or (verb == 1) == (mine and true or false) then
    return
  end
  local seen, past, token, tail, far, ends, buried, bears, used, earliest, granted, waiting, watched,
    arrival, deadline, weight, first_granted, last_granted, first, last = unpack(head)
  local now = clock + past
  if token < last_token then token = last_token end
  if clock < seen or now > FURTHEST or watched > 0 then
    return
  end
  -- What is written besides the head: fields and their values.
  local answer, field, value, before, before_value, heir, second
  -- For the audit log: the claim, and behind whom it is granted, or since when it has held.
  local body, came, follows, begun, held, behind, ahead

  if verb == 1 then
    if closed_for > 0 or (buried > 0 and string.find(released, id, 1, true)) then
      return
    end
    local lease_ttl, waiter_ttl = unpack_from('<dd', command, 3)
    local traits, of, ours, inbox = unpack_from('<BI4I4Bc0', command, body_at)
    body, field = sub(command, body_at), id
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
      came, follows = tail, 0
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
      local ahead, ahead_traits, ahead_weight, ahead_inbox, ahead_arrival
      if waiting == 0 and traits % 4 >= 2 and inbox ~= '' and closed_for <= 0 and granted < LEAN_RUN then
        ahead = text_of(last_granted)
        local _, at
        _, _, ahead_arrival, _, _, _, at = unpack_from('<Bc0Bc0dddd', ahead)
        ahead_traits, _, ahead_weight, ahead_inbox = unpack_from('<BI4I4Bc0', ahead, at)
      end
      if ahead and ahead_traits % 4 >= 2 and ahead_weight == LEAN_LOCK and ahead_inbox == inbox then
        -- Behind another of its client.
        token = token + 1
        if token < clock then token = clock end
        value = pack('<BBc0dddd', 0, #last_granted, last_granted, tail, token, until_, now) .. body
        before, before_value = last_granted, pack('<Bc0', #id, id) .. sub(ahead, 2 + byte(ahead))
        if until_ < earliest then earliest = until_ end
        used, granted, last_granted = used + ours, granted + 1, id
        arrival, deadline, weight = 0, 0, 0
        answer = pack('<Bdddddd', 1, now, tail, token, granted - 1, until_, ahead_arrival)
        came, follows = tail, ahead_arrival
      else
        value = pack('<BBc0dddd', 0, #last, last, tail, 0, until_, now) .. body
        if waiting > 0 then
          before, before_value = last, text_of(last)
          before_value = pack('<Bc0', #id, id) .. sub(before_value, 2 + byte(before_value))
        else
          first, arrival, deadline = id, tail, until_
        end
        waiting, last = waiting + 1, id
        local position = tail - arrival + 1
        if position > waiting then position = waiting end
        position = position + math.floor((used - 1) / LEAN_LOCK)
        answer = pack('<Bdddddd', 1, now, tail, 0, position, until_, earliest)
      end
    end
  else
    -- It is settled and hands on. There is no minimum hold, and no released id to be forgotten:
    -- the oldest comes first.
    local ours, _, traits, inbox
    behind, ahead, came, held, ours, begun, traits, _, _, inbox = unpack_from('<Bc0Bc0ddddBI4I4Bc0', mine)
    if marks % 4 ~= 3 or held == 0 or ours <= now or traits % 16 >= 8
      or (granted > 1 and (closed_for > 0 or traits % 4 < 2 or granted >= LEAN_RUN or used ~= granted * LEAN_LOCK))
      or (buried > 0 and unpack_from('<d', released) <= now) then
      return
    end
    answer = pack('<Bdd', 4, now, 1)
    if granted > 1 then
      -- The next of its run holds, as its client knows. None who waits may be granted behind it.
      if waiting > 0 then
        local text = deadline > now and now < earliest and bears == -1 and text_of(first)
        if not text then
          return
        end
        local _, _, _, _, _, _, at = unpack_from('<Bc0Bc0dddd', text)
        local _, _, _, theirs = unpack_from('<BI4I4Bc0', text, at)
        if theirs == inbox then
          return
        end
      end
      used, granted = used - LEAN_LOCK, granted - 1
      if id == first_granted then
        first_granted = behind
      else
        -- Its release has overtaken that of the claim ahead.
        local text = text_of(ahead)
        before, before_value = ahead, pack('<Bc0', #behind, behind) .. sub(text, 2 + byte(text))
        if id == last_granted then
          last_granted = ahead
        else
          text = text_of(behind)
          local at = 2 + byte(text)
          field, value = behind, sub(text, 1, at - 1) .. pack('<Bc0', #ahead, ahead) .. sub(text, at + 1 + byte(text, at))
        end
      end
    elseif waiting == 0 then
      if not in_cluster then
        if buried > 0 then
          return
        end
        call('DEL', key)
        key_open = nil
        if note then
          note('r', key, now, held, came, begun, 0, id, sub(mine, 35 + #behind + #ahead))
        end
        if last_token < token then last_token = token end
        return answer
      end
      bears, used, earliest, granted, first_granted, last_granted = 0, 0, 0, 0, '', ''
      arrival, deadline, weight, first, last = 0, 0, 0, '', ''
    else
      field = first
      local text = closed_for <= 0 and bears == -1 and weight == LEAN_LOCK and text_of(first)
      if not text then
        return
      end
      local next, _, heirs, _, lapses, joined, heir_at = unpack_from('<Bc0Bc0dddd', text)
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
      heir = {id = first, inbox = inbox, arrival = heirs, token = token, deadline = earliest,
        joined = joined, body = sub(text, heir_at)}
      value = pack('<BBdddd', 0, 0, heirs, token, earliest, now) .. heir.body
      first_granted, last_granted, used, waiting = first, first, LEAN_LOCK, waiting - 1
      if waiting > 0 then
        first = next
        local _, second_traits, second_inbox
        _, _, arrival, _, deadline, _, second_traits, _, weight, second_inbox =
          unpack_from('<Bc0Bc0ddddBI4I4Bc0', text_of(first))
        -- It has not lapsed, and is not granted in one run with the heir.
        if deadline <= now or (theirs % 4 >= 2 and second_traits % 4 >= 2 and inbox ~= ''
          and second_inbox == inbox) then
          return
        end
        second = second_inbox ~= '' and {inbox = second_inbox, arrival = arrival}
      else
        arrival, deadline, weight, first, last = 0, 0, 0, '', ''
      end
    end
  end

  -- The key has to live long enough as it is.
  if ends < clock + far - now + SPARE * 15 / 16 then
    return
  end
  if note and follows then
    note('g', key, now, token, came, now, follows, id, body)
  elseif note and begun then
    note('r', key, now, held, came, begun, 0, id, sub(mine, 35 + #behind + #ahead))
  end
  if note and heir then
    note('g', key, now, token, heir.arrival, heir.joined, 0, heir.id, heir.body)
  end
  if verb == 3 then
    claims[id], changed[#changed + 1] = false, id
  end
  if field then
    claims[field], changed[#changed + 1] = value, field
  end
  if before then
    claims[before], changed[#changed + 1] = before_value, before
  end
  head = {clock, past, token, tail, far, ends, buried, bears, used, earliest, granted, waiting, 0, arrival,
    deadline, weight, first_granted, last_granted, first, last}
  steps_open[#steps_open + 1] = at
  if last_token < token then last_token = token end
  if heir then
    local failed = write_queue()
    if failed then
      return failed
    end
    return answer, tell_heir(key, now, heir, second)
  end
  return answer
end
