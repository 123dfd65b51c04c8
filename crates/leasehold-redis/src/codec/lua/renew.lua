-- Queue::adopt
local function adopt(claim, former_id, client)
  local former = {id = former_id, inbox = claim.inbox, arrival = claim.arrival}
  if claim.token > 0 then
    disband(claim.token)
  end
  claim.inbox, claim.runs = struct.unpack('<Bc0', client), false
  repack(claim, client)
  if former.inbox ~= claim.inbox then
    tell('a', former, '%.0f ', now)
  end
  if claim.token == 0 then
    return
  end
  local before = claim.token
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
  -- What has expired is not taken over.
  for _, member in ipairs(members) do
    live(member.id)
  end
  for _, member in ipairs(members) do
    if find(member.id) then
      unlink(member)
      member.token = token
      if not member.kept then
        audit('a', member, before, 0)
      end
      granted, first_granted, last_granted = append(member, granted, first_granted, last_granted)
    end
  end
end

-- Queue::rotate: replaces the id, and perhaps the client; or says why not.
local function rotate(claim, to, version, client)
  local id = claim.id
  -- Who takes it over does not know of a release that the store may have forgotten.
  if (claim.version or 0) ~= version or (client and closed_for > 0) then
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
  if client then
    adopt(claim, id, client)
  elseif claim.token > 0 then
    audit('i', claim, 0, 0, id)
  end
end

-- Queue::downgrade
local function downgrade(claim)
  if claim.token > 0 and alone(claim) and not claim.secret and not behind(claim) then
    claim.weight = 1
    used = used - (LOCK - 1)
    repack(claim, who(claim))
    audit('d', claim, 0, 0)
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

-- Queue::renew. Works when the memory is full.
local function renew(command)
  local _, flags, ttl, id, at = struct.unpack('<BBdBc0', command)
  local downgrades, notes, rotates = flags % 2 >= 1, flags % 4 >= 2, flags % 16 >= 8
  local note, to, version
  if notes or rotates then
    note, to, version, at = struct.unpack('<I2c0Bc0d', command, at)
  end
  local client = flags % 32 >= 16 and string.sub(command, at)
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
    return {rotated and 8 or 3, now}, true
  end
  local answer = drop_unfit(claim)
  if answer then
    return answer, true
  end
  drop_lapsed_ahead(claim)
  if rotates and not done then
    local refused = rotate(claim, to, version, client)
    if refused then
      -- The answer says nothing about a grant: that is for a push.
      actor = ''
      promote()
      return refused, true
    end
  end
  if downgrades then
    downgrade(claim)
  end
  if notes then
    set_note(claim, note)
  end
  promote()
  return raise(claim, ttl, ttl), true
end
