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

-- Puts a claim before those that wait.
local function prepend(claim)
  claim.token, claim.prev, claim.next = 0, '', first_waiting
  if waiting == 0 then
    last_waiting = claim.id
  else
    local after = find(first_waiting)
    after.prev = claim.id
    touch(after)
  end
  waiting, first_waiting = waiting + 1, claim.id
  touch(claim)
  note_first()
end

-- Queue::disband
local function disband(token)
  local first = granted > 0 and find(first_granted).token
  while granted > 0 do
    local claim = find(last_granted)
    if claim.token < token or claim.token == first or not alone(claim) then
      return
    end
    unlink(claim)
    used = used - claim.weight
    prepend(claim)
  end
end
