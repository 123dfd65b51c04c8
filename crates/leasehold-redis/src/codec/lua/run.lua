-- Runs: claims of one client that are granted one behind the other; the first of them holds.
local LOCK, RUN, FOLLOWERS_PER_STEP = 1048576, 1024, 64

-- Mode::EXCLUSIVE
local function alone(claim)
  return claim.capacity == -1 and claim.weight == LOCK
end

-- Queue::behind: the arrival of the claim right ahead of one that is granted and does not hold yet.
local function behind(claim)
  local ahead = claim
  if claim.token == 0 or not alone(claim) then
    return nil
  end
  repeat
    if ahead.id == first_granted then
      return nil
    end
    ahead = find(ahead.prev)
  until ahead.token ~= claim.token
  return ahead.arrival
end

-- Queue::followers
local function followers()
  return capacity == -1 and used > 0 and math.floor((used - 1) / LOCK) or 0
end

-- Queue::is_followed_by: whether the last granted claim may have this one granted behind it.
local function is_followed_by(claim)
  local last = claim.runs and claim.inbox ~= '' and granted > 0 and granted < RUN and find(last_granted)
  return last and last.runs and alone(last) and last.inbox == claim.inbox and last.arrival < claim.arrival
end

-- Queue::lets_follow
local function lets_follow()
  local follows = followers_left > 0 and is_followed_by(find(first_waiting))
  if follows then
    followers_left = followers_left - 1
  end
  return follows
end

-- Queue::enqueue, for one that has waited before: it stands near the front.
local function put_in_line(claim)
  local before, after = nil, waiting > 0 and find(first_waiting)
  while after and after.arrival < claim.arrival do
    before, after = after, after.id ~= last_waiting and find(after.next)
  end
  claim.token, claim.prev, claim.next = 0, before and before.id or '', after and after.id or ''
  if before then
    before.next = claim.id
    touch(before)
  else
    first_waiting = claim.id
  end
  if after then
    after.prev = claim.id
    touch(after)
  else
    last_waiting = claim.id
  end
  waiting = waiting + 1
  touch(claim)
  note_first()
end

-- Takes a grant back: the claim waits where it stood.
local function step_back(claim)
  if claim.deadline <= now then
    audit('x', claim, claim.since, claim.deadline, finder)
  else
    audit('b', claim, 0, 0)
  end
  unlink(claim)
  used = used - claim.weight
  put_in_line(claim)
end

-- Queue::disband
local function disband(token)
  local first = granted > 0 and find(first_granted).token
  while granted > 0 do
    local claim = find(last_granted)
    if claim.token < token or claim.token == first or not alone(claim) then
      return
    end
    step_back(claim)
  end
end
