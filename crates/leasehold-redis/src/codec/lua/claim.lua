-- Queue::claim. Answers what to say, and whether it must be written even when the
-- memory is full: a claim that stands already must.
local function claim(command)
  local _, flags, lease_ttl, waiter_ttl, id, body_at = struct.unpack('<BBddBc0', command)
  local body, wait, ahead = string.sub(command, body_at), flags % 2 >= 1, flags % 4 >= 2
  local claim = live(id)
  local wanted = new_claim(id, body)
  if claim then
    local kept, taken = claim.kept, claim.inbox ~= wanted.inbox
    if taken then
      -- Its client does not hear this answer.
      actor = ''
    else
      local unfit = drop_unfit(claim)
      if unfit then
        return unfit, true
      end
    end
    drop_lapsed_ahead(claim)
    promote()
    if kept then
      return {3, now}, true
    elseif taken then
      return {9, now}, true
    end
    return raise(claim, lease_ttl, waiter_ttl), true
  end
  claim = wanted
  ahead = ahead and not claim.secret

  local known = is_buried(id)
  -- An unfair claim is asked first: else it could never win a vacant key.
  local barges = ahead and not known and capacity == claim.capacity
    and closed_for <= 0
    and make_room(claim.weight)
  if not barges then
    promote()
  end
  if known then
    return {3, now}, false
  end
  if granted + waiting > 0 and capacity ~= claim.capacity then
    reclaim()
  end
  if granted + waiting > 0 and capacity ~= claim.capacity then
    return {6, now, capacity}, false
  end
  capacity = claim.capacity

  local token = claim.secret
    and closed_for <= 0
    and carrier(claim.secret)
  local at_once = barges or token or ((ahead or waiting == 0)
    and closed_for <= 0
    and make_room(claim.weight))
  if not at_once and not wait then
    if closed_for > 0 then
      return {12, now, now + closed_for}, false
    end
    return {2, now, blocked_until()}, false
  end
  -- Queue::next_arrival
  last_arrival = last_arrival + 1
  if granted + waiting == 0 then
    last_arrival = math.max(last_arrival, last_token + 1, clock)
  end
  claim.arrival, claim.token, claim.since = last_arrival, 0, now
  claim.deadline = now + (at_once and math.max(lease_ttl, claim.min_hold or 0) or waiter_ttl)
  furthest = math.max(furthest, claim.deadline)
  if at_once then
    note_renewal(claim, now + lease_ttl)
  end
  if token then
    hold(claim, token)
  elseif at_once or closed_for <= 0 and waiting == 0 and is_followed_by(claim) then
    grant(claim)
    if barges then
      promote()
    end
  else
    -- Queue::enqueue
    waiting, first_waiting, last_waiting = append(claim, waiting, first_waiting, last_waiting)
    if waiting == 1 then
      note_first()
    end
    if claim.secret then
      table.insert(siblings_of(claim.secret), id)
    end
  end
  return standing(claim), false
end
