-- Leaves the queue, holding or waiting; unless settled, the id stays released.
-- The twin of `Queue::release`. Works when the memory is full.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  claim id
-- ARGV[2]  flags: 1 the step hands on to the next in line, 2 settled: no claim
--          with this id can still be under way, 4 the count of PUBLISH can be
--          believed, 8 what it holds was never used: no minimum hold is kept,
--          and the way
-- ARGV[3]  retention, in microseconds
--
-- Returns  4, at, 1 if it held else 0  released
--          5, at                       absent
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION
local key, flags = KEYS[1], ARGV[2] + 0
-- include time.lua
-- include way.lua
-- include open.lua
local id, retention = ARGV[1], ARGV[3] + 0
local settled, believed, unused = flags % 4 >= 2, flags % 8 >= 4, flags % 16 >= 8

-- The short path: it holds, nobody else is there, and nothing is to be remembered.
if settled and claim_size > 0 then
  local deadline, _, holder, traits = struct.unpack('<ddBc0B', raw, 55)
  -- There is no minimum hold.
  if holder == id and deadline > now and traits % 16 < 8 then
    local keep = furthest - now
    keep = keep > 0 and keep + retention or retention
    local extend = expires < clock + keep - retention / 16
    if extend then expires = clock + keep end
    -- Queue::forget_buried
    local from = 55 + claim_size
    while buried_count > 0 do
      local forget, _, size = struct.unpack('<dBB', raw, from)
      if forget > now then
        break
      end
      from = from + 10 + size
      buried_count = buried_count - 1
    end
    local record = struct.pack('<BBBddddddBI2', 108, 104, 1, clock, offset, last_token, last_arrival, furthest, expires,
      buried_count, 0)
    if buried_count > 0 then
      record = record .. string.sub(raw, from)
    end
    local done
    if extend then
      done = redis.pcall('SET', key, record, 'PX', math.ceil(keep / 1000))
    else
      done = redis.pcall('SET', key, record, 'KEEPTTL')
    end
    if done.err then
      call('PEXPIRE', key, math.ceil(keep / 1000))
      call('SET', key, record, 'KEEPTTL')
    end
    return struct.pack('<Bdd', 4, now, 1)
  end
end

-- The short path in a queue: the only holder hands a lock on to the first in
-- line, which takes all of it, alone. Nobody watches. The rest of this script says the same at length.
local silent, granted_id, rounds
if not raw and not absent and flags % 4 == 3 then
  local fields = redis.pcall('HMGET', key, ' head', id)
  local head, mine = fields[1], fields[2]
  if head and mine and #head > 54 and string.sub(head, 1, 3) == 'lh\1' then
    local seen, past, token, tail, far, ends, buried, bears, used, earliest, granted, waiting, watched,
      _, _, weight, first_granted, _, first, last =
      struct.unpack('<ddddddBdddddddddBc0Bc0Bc0Bc0', head, 4)
    local at = clock + past
    local _, _, _, _, ours, _, traits = struct.unpack('<Bc0Bc0ddddB', mine)
    -- Nobody to hand it on to, in a cluster: elsewhere the record becomes a string.
    if in_cluster and clock >= seen and at <= FURTHEST and granted == 1 and first_granted == id and waiting + watched == 0
      and ours > at and traits % 16 < 8
      and (buried == 0 or (struct.unpack('<d', call('HGET', key, ' released'))) > at) then
      local keep = math.max(far - at, 0) + retention
      local extend = ends < clock + keep - retention / 16
      if extend then ends = clock + keep end
      -- Letting go first: then the write may pass even if the memory is full.
      call('HDEL', key, id)
      call('HSET', key, ' head', struct.pack('<BBBddddddBdddddddddBBBB', 108, 104, 1, clock, past, token, tail, far, ends,
        buried, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
      if extend then
        call('PEXPIRE', key, math.ceil(keep / 1000))
      end
      return struct.pack('<Bdd', 4, at, 1)
    end
    local heir = clock >= seen and at <= FURTHEST
      and closed_for <= 0
      and bears == -1 and granted == 1 and first_granted == id
      and ours > at and traits % 16 < 8 and waiting > 0 and weight == 1048576 and watched == 0
      -- Queue::forget_buried has nothing to forget: the oldest comes first.
      and (buried == 0 or (struct.unpack('<d', call('HGET', key, ' released'))) > at)
      and call('HGET', key, first)
    if heir then
      local next, _, arrival, _, deadline, _, body_at = struct.unpack('<Bc0Bc0dddd', heir)
      local body = string.sub(heir, body_at)
      local theirs, _, _, inbox = struct.unpack('<BI4I4Bc0', body)
      -- It has neither an owner with other claims nor a minimum hold.
      if theirs % 16 < 4 and deadline > at and ends >= clock + math.max(far, at + 3000000) - at + retention * 15 / 16 then
        token = token + 1
        if token < clock then token = clock end
        if deadline < at + 3000000 then deadline = at + 3000000 end
        if far < deadline then far = deadline end
        waiting = waiting - 1
        local second, second_arrival, second_deadline, second_inbox = '', 0, 0, ''
        weight = 0
        if waiting > 0 then
          second = next
          local _
          _, _, second_arrival, _, second_deadline, _, _, _, weight, second_inbox =
            struct.unpack('<Bc0Bc0ddddBI4I4Bc0', call('HGET', key, second))
        else
          last = ''
        end
        -- One that has lapsed is dropped below.
        if waiting == 0 or second_deadline > at then
          -- Letting go first: then the write may pass even if the memory is full.
          call('HDEL', key, id)
          call('HSET', key, ' head', struct.pack('<BBBddddddBdddddddddBc0Bc0Bc0Bc0', 108, 104, 1, clock, past, token, tail,
              far, ends, buried, bears, 1048576, deadline, 1, waiting, 0, second_arrival, second_deadline, weight,
              #first, first, #first, first, #second, second, #last, last),
            first, struct.pack('<BBdddd', 0, 0, arrival, token, deadline, at) .. body)

          -- Queue::deliver
          local from = string.find(key, 'lock:', 1, true)
          local prefix, name = string.sub(key, 1, from - 1), string.sub(key, from + 5)
          local text, hint
          if inbox ~= '' then
            local said = string.format('g %.0f %.0f %.0f ', arrival, token, at)
            text = '2 ' .. said .. prove(first, said .. name) .. ' ' .. name
          end
          if second_inbox ~= '' then
            hint = string.format('2 n %.0f %.0f %.0f ', second_arrival, deadline, at) .. name
          end
          if text and hint and inbox == second_inbox then
            text, hint = text .. '\n' .. hint, nil
          end
          if text and not publish(prefix, inbox, text) and believed then
            silent, granted_id, rounds = inbox, first, 8
          elseif hint and not publish(prefix, second_inbox, hint) and believed then
            silent, rounds = second_inbox, 7
          else
            return struct.pack('<Bdd', 4, at, 1)
          end
        end
      end
    end
  end
end

-- include state.lua
local function step()
-- include queue.lua
  if silent then
    -- Handed on above, to nobody who listens.
    open('')
    relay(unheard(silent, {granted_id and find(granted_id)}), rounds, true)
    save(true, retention)
    return struct.pack('<Bdd', 4, now, 1)
  end
  local failed = open(id)
  if failed then
    return failed
  end
  local claim = live(id)
  if claim and claim.kept then
    claim = nil
  end
  local answer, held, kept = {5, now}, false, false
  if claim then
    held = claim.token > 0
    if unused then
      claim.min_hold = nil
    end
    answer = {4, now, held and 1 or 0}
    kept = vacate(claim)
  end
  if not settled then
    bury(id)
  end
  forget_buried()
  if flags % 2 == 1 or not held then
    promote()
  elseif waiting > 0 and not kept then
    -- Queue::tell_vacant
    tell_next(find(first_waiting), now + closed_for)
  end
  return finish(answer, true, retention, believed)
end
return step()
