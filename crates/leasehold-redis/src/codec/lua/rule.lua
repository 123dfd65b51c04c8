-- The rule: who is granted, and how a hold ends.
local PROMOTED_FLOOR, DROPS_PER_STEP = 3000000, 256

local function units()
  return capacity == -1 and LOCK or capacity
end

-- Queue::fits
local function fits(weight)
  return capacity == 0 or used + weight <= units()
end

-- Queue::reclaim
local function reclaim()
  if granted == 0 or now < earliest then
    return false
  end
  local soonest, lapsed = nil, {}
  local id = first_granted
  for _ = 1, granted do
    local claim = find(id)
    if claim.deadline > now then
      if not soonest or claim.deadline < soonest then
        soonest = claim.deadline
      end
    elseif drops_left == 0 then
      soonest = earliest
      break
    else
      drops_left = drops_left - 1
      lapsed[#lapsed + 1] = claim
    end
    id = claim.next
  end
  earliest = soonest or 0
  for _, claim in ipairs(lapsed) do
    remove(claim)
  end
  return #lapsed > 0
end

-- Queue::drop_lapsed_ahead: those ahead in its run may have lapsed, and nobody else may look.
local function drop_lapsed_ahead(claim)
  if behind(claim) then
    reclaim()
  end
end

-- Queue::make_room
local function make_room(weight)
  return fits(weight) or (reclaim() and fits(weight))
end

-- Queue::next_token
local function next_token()
  return math.max(last_token + 1, clock)
end

-- Queue::hold. A claim under a token that is held already came after the others.
local function hold(claim, token)
  claim.token = token
  earliest = granted == 0 and claim.deadline or math.min(earliest, claim.deadline)
  granted, first_granted, last_granted = append(claim, granted, first_granted, last_granted)
  if note then
    audit('g', claim, claim.joined or claim.since, behind(claim) or 0)
  end
end

-- Queue::grant
local function grant(claim)
  last_token = next_token()
  used = used + claim.weight
  hold(claim, last_token)
end

-- Queue::lift
local function lift(claim)
  claim.deadline = math.max(claim.deadline, now + PROMOTED_FLOOR)
  note_renewal(claim, claim.deadline)
  claim.deadline = math.max(claim.deadline, now + (claim.min_hold or 0))
  claim.joined, claim.since = claim.since, now
  furthest = math.max(furthest, claim.deadline)
end

local function tell_granted(claim)
  local ahead = behind(claim)
  if claim.id == actor then
    return
  elseif ahead then
    tell('f', claim, '%.0f %.0f %.0f ', claim.token, ahead, now)
  else
    tell('g', claim, '%.0f %.0f ', claim.token, now)
  end
end

-- Queue::grant_siblings
local function grant_siblings(secret, token)
  local ids = siblings_of(secret)
  siblings[secret] = {}
  for _, id in ipairs(ids) do
    local claim = find(id)
    unlink(claim)
    if claim.deadline <= now then
      forget(id)
    else
      lift(claim)
      hold(claim, token)
      tell_granted(claim)
    end
  end
end

-- An exclusive hold is one owner's, and its last claim that has not left tells whose.
local function last_not_kept()
  local claim = find(last_granted)
  for _ = 2, granted do
    if not claim.kept then
      break
    end
    claim = find(claim.prev)
  end
  return claim
end

-- Queue::carrier: the token under which this owner holds.
local function carrier(secret)
  reclaim()
  if granted == 0 or not alone(find(first_granted)) then
    return false
  end
  local claim = last_not_kept()
  return claim.secret == secret and claim.token
end

-- Queue::catch_up
local function catch_up()
  local claim = gated and closed_for <= 0 and waiting > 0 and granted > 0 and last_not_kept()
  if claim and claim.secret and #siblings_of(claim.secret) > 0 then
    local token = carrier(claim.secret)
    if token then
      grant_siblings(claim.secret, token)
    end
  end
end

-- Step::passes
local function is_passed(claim, passed)
  return passed[claim.inbox] and not claim.secret
end

-- Queue::promote_in_order
local function promote_in_order(passed)
  local aside = {}
  while waiting > 0 do
    local too_small = first_weight > units()
    if first_deadline <= now or too_small then
      if drops_left == 0 then
        return aside
      end
      drops_left = drops_left - 1
      local claim = find(first_waiting)
      remove(claim)
      if claim.deadline > now then
        tell('u', claim, '%.0f %.0f ', capacity, now)
      end
    elseif passed and is_passed(find(first_waiting), passed) then
      aside[#aside + 1] = find(first_waiting)
      unlink(aside[#aside])
    elseif closed_for > 0 or not make_room(first_weight) and not lets_follow() then
      return aside
    else
      local claim = find(first_waiting)
      unlink(claim)
      lift(claim)
      grant(claim)
      tell_granted(claim)
      if claim.secret then
        grant_siblings(claim.secret, claim.token)
      end
    end
  end
  return aside
end

-- Queue::promote
local function promote(passed)
  catch_up()
  for _, claim in ipairs(promote_in_order(passed)) do
    put_in_line(claim)
  end
end

-- Queue::drop_unfit
local function drop_unfit(claim)
  if claim.token == 0 and claim.weight > units() then
    remove(claim)
    promote()
    return {6, now, capacity}
  end
end

-- Queue::vacate_in
local function vacate(claim)
  local keep_until = claim.since + (claim.min_hold or 0)
  if claim.token == 0 or keep_until <= now then
    remove(claim)
    return false
  end
  local owner = string.sub(who(claim), 2 + #claim.inbox)
  shortened = shortened or keep_until < claim.deadline
  claim.deadline, claim.kept, claim.inbox, claim.secret, claim.renewed = keep_until, true, '', nil, 0
  repack(claim, struct.pack('B', 0) .. owner)
  earliest = math.min(earliest, keep_until)
  return true
end
