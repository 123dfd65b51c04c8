-- The two lists: granted in order of tokens and arrival, waiting in order of
-- arrival. The links beyond the ends of a list are stale: the head says where it
-- ends. And the index of the waiting claims of each owner.

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

-- ---- Queue::siblings: one field an owner, with the ids in order of arrival ----

local function siblings_of(secret)
  local ids = siblings[secret]
  if not ids then
    ids = {}
    siblings[secret] = ids
    local text = is_hash and call('HGET', key, ' o' .. secret) or ''
    local at = 1
    while at <= #text do
      ids[#ids + 1], at = struct.unpack('<Bc0', text, at)
    end
  end
  siblings_changed[secret] = true
  return ids
end

-- Puts an id in the place of another; none takes it out.
local function replace_sibling(secret, old, new)
  local ids = siblings_of(secret)
  for at, id in ipairs(ids) do
    if id == old and new then
      ids[at] = new
    elseif id == old then
      table.remove(ids, at)
      return
    end
  end
end

-- ---- in and out ----

-- Where the neighbours of a claim pointed at it, they point at others now.
-- Answers the ends of the list.
local function relink(claim, first, last, next, prev)
  if claim.id ~= first then
    local before = find(claim.prev)
    before.next = next
    touch(before)
  end
  if claim.id ~= last then
    local after = find(claim.next)
    after.prev = prev
    touch(after)
  end
  return claim.id == first and next or first, claim.id == last and prev or last
end

local function unlink(claim)
  if claim.token > 0 then
    granted = granted - 1
    first_granted, last_granted = relink(claim, first_granted, last_granted, claim.next, claim.prev)
    if granted == 0 then
      first_granted, last_granted = '', ''
    end
    return
  end
  if claim.secret then
    replace_sibling(claim.secret, claim.id)
  end
  local first = first_waiting
  waiting = waiting - 1
  first_waiting, last_waiting = relink(claim, first_waiting, last_waiting, claim.next, claim.prev)
  if waiting == 0 then
    first_waiting, last_waiting = '', ''
  elseif first ~= first_waiting then
    note_first()
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

local function forget(id)
  claims[id], changed[id], gone[id] = false, nil, true
end

-- The weight is of the token: whether another claim has the same. Those stand
-- side by side.
local function shares_token(claim)
  return claim.id ~= first_granted and find(claim.prev).token == claim.token
    or claim.id ~= last_granted and find(claim.next).token == claim.token
end

-- Queue::audit
local function audit(kind, claim, one, other, text)
  if note then
    note(kind, key, now, claim.token, claim.arrival, one, other, claim.id, claim.body, text)
  end
end

-- Queue::remove
local function remove(claim)
  if claim.token > 0 and claim.deadline <= now and not claim.kept then
    audit('x', claim, claim.since, claim.deadline, finder)
  end
  if claim.token > 0 and not shares_token(claim) then
    used = used - claim.weight
  end
  unlink(claim)
  forget(claim.id)
end

-- Gives a claim another id where it stands.
local function rename(claim, id)
  if claim.token > 0 then
    first_granted, last_granted = relink(claim, first_granted, last_granted, id, id)
  else
    first_waiting, last_waiting = relink(claim, first_waiting, last_waiting, id, id)
    if claim.secret then
      replace_sibling(claim.secret, claim.id, id)
    end
  end
  forget(claim.id)
  claim.id = id
  claims[id], gone[id] = claim, nil
  touch(claim)
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
