-- Raises the deadline of a claim; never lowers it. In the same step the claim may
-- change. The twin of `Queue::renew`. Works when the memory is full.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  claim id
-- ARGV[2]  TTL, in microseconds
-- ARGV[3]  flags: 1 a writer becomes a reader, 2 there is a new note, 4 the count
--          of PUBLISH can be believed, 8 there is a new id, 16 and a new client, and the way
-- ARGV[4]  retention, in microseconds
-- only if there is a new note, id or client:
-- ARGV[5]  the new note
-- ARGV[6]  the new id
-- ARGV[7]  the version that the claim has now
-- ARGV[8]  the new client: inbox, pid, host, label, packed as in a body
--
-- Returns  1, at, arrival, token or 0, position, deadline, blocked until or 0  standing
--          3, at                                                               gone
--          6, at, permits in use                                               mismatch
--          8, at                                                               superseded
--          9, at                                                               taken
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION
local key, flags = KEYS[1], ARGV[3] + 0
-- include time.lua
-- include way.lua
-- include open.lua
local id, retention = ARGV[1], ARGV[4] + 0

-- The short path: it holds, nobody else is there, and nothing else changes.
if raw and claim_size > 0 and flags % 4 == 0 and flags % 32 < 8 then
  local deadline, _, holder, traits = struct.unpack('<ddBc0B', raw, 55)
  -- There is no minimum hold, whose body would change.
  if holder == id and deadline > now and traits % 16 < 8 then
    local raised = now + ARGV[2]
    if deadline < raised then deadline = raised end
    if furthest < deadline then furthest = deadline end
    local keep = furthest - now + retention
    local extend = expires < clock + keep - retention / 16
    if extend then expires = clock + keep end
    local record = struct.pack('<BBBddddddBI2d', 108, 104, 1, clock, offset, last_token, last_arrival, furthest, expires,
      buried_count, claim_size, deadline) .. string.sub(raw, 63)
    local millis = math.ceil(keep / 1000)
    local done
    if extend then
      done = redis.pcall('SET', key, record, 'PX', millis)
    else
      done = redis.pcall('SET', key, record, 'KEEPTTL')
    end
    if done.err then
      call('PEXPIRE', key, millis)
      call('SET', key, record, 'PX', millis)
    end
    return struct.pack('<Bdddddd', 1, now, last_arrival, last_token, 0, deadline, 0)
  end
end

-- include state.lua
local function step()
-- include queue.lua
  local failed = open(id)
  if failed then
    return failed
  end
  local ttl = ARGV[2] + 0
  local downgrades, notes, rotates, adopts = flags % 2 >= 1, flags % 4 >= 2, flags % 16 >= 8, flags % 32 >= 16

  -- ---- what may change ----

  -- Queue::adopt
  local function adopt(claim, client)
    local former = {id = id, inbox = claim.inbox, arrival = claim.arrival}
    claim.inbox = struct.unpack('<Bc0', client)
    repack(claim, client)
    if former.inbox ~= claim.inbox then
      tell('a', former, '%.0f ', now)
    end
    if claim.token == 0 then
      return
    end
    -- The whole hold moves to the tail, in its order. What it weighs stays.
    local token = next_token()
    last_token = token
    local first, size = claim, 1
    while first.id ~= first_granted and find(first.prev).token == claim.token do
      first = find(first.prev)
    end
    local members = {first}
    while members[size].id ~= last_granted and find(members[size].next).token == claim.token do
      size = size + 1
      members[size] = find(members[size - 1].next)
    end
    for _, member in ipairs(members) do
      unlink(member)
      member.token = token
      granted, first_granted, last_granted = append(member, granted, first_granted, last_granted)
    end
  end

  -- Queue::rotate: replaces the id, and perhaps the client; or says why not.
  local function rotate(claim, to, version)
    if (claim.version or 0) ~= version then
      return {8, now}
    elseif find(to) or is_buried(to) then
      return {9, now}
    end
    rename(claim, to)
    claim.version, claim.previous = version + 1, id
    repack(claim, who(claim))
    bury(id, true)
    forget_buried()
    actor = to
    if adopts then
      adopt(claim, ARGV[8])
    end
  end

  -- Queue::downgrade
  local function downgrade(claim)
    if claim.token > 0 and alone(claim) and not claim.secret then
      claim.weight = 1
      used = used - (LOCK - 1)
      repack(claim, who(claim))
    end
  end

  -- Queue::set_note
  local function set_note(claim, note)
    if claim.note ~= note then
      claim.note = note
      repack(claim, who(claim))
      -- Those who watch look at the first holder only.
      noted = noted or (granted > 0 and claim.id == first_granted)
    end
  end

  -- ---- the verb ----

  local function renew()
    local to, version = ARGV[6], ARGV[7] and ARGV[7] + 0
    -- Queue::has_rotated: that very rotation was done before.
    local done = rotates and find(to)
    done = done and done.previous == id and done.version == version + 1
    if done then
      actor = to
    end
    local claim = live(done and to or id)
    if not claim or claim.kept then
      promote()
      local _, rotated = is_buried(id)
      return {rotated and 8 or 3, now}
    end
    local answer = drop_unfit(claim)
    if answer then
      return answer
    end
    if rotates and not done then
      local refused = rotate(claim, to, version)
      if refused then
        -- The answer says nothing about a grant: that is for a push.
        actor = ''
        promote()
        return refused
      end
    end
    if downgrades then
      downgrade(claim)
    end
    if notes then
      set_note(claim, ARGV[5])
    end
    promote()
    return raise(claim, ttl, ttl)
  end

  return finish(renew(), true, retention, flags % 8 >= 4)
end
return step()
