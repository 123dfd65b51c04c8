-- Part 2 of 3, the rule: who is granted, who is told, what is answered.

-- ---- what is told ----

local events = {}
local prefix_size = string.find(key, 'lock:', 1, true) - 1
local name = string.sub(key, prefix_size + 6)

-- A line names no claim id; the key comes last, since it may hold spaces.
local function tell(kind, claim, format, ...)
  if claim.inbox ~= '' then
    local line = string.format('1 ' .. kind .. ' %.0f ' .. format, claim.arrival, ...) .. name
    events[#events + 1] = {kind = kind, claim = claim, inbox = claim.inbox, line = line}
  end
end

local function blocked_until()
  return granted == 0 and now or earliest
end

local function tell_next(claim, blocked)
  tell('n', claim, '%.0f %.0f ', blocked, now)
end

-- ---- the rule ----

local actor = ''
local drops_left = DROPS_PER_STEP
local first_before = false

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

-- Queue::make_room
local function make_room(weight)
  return fits(weight) or (reclaim() and fits(weight))
end

-- Queue::next_token
local function next_token()
  return math.max(last_token + 1, clock)
end

-- Queue::grant
local function grant(claim)
  last_token = next_token()
  claim.token = last_token
  earliest = granted == 0 and claim.deadline or math.min(earliest, claim.deadline)
  used = used + claim.weight
  granted, first_granted, last_granted = append(claim, granted, first_granted, last_granted)
end

-- Queue::promote
local function promote()
  while waiting > 0 do
    if first_deadline <= now then
      if drops_left == 0 then
        return
      end
      drops_left = drops_left - 1
      remove(find(first_waiting))
    elseif not make_room(first_weight) then
      return
    else
      local claim = find(first_waiting)
      unlink(claim)
      claim.deadline = math.max(claim.deadline, now + PROMOTED_FLOOR)
      claim.since = now
      furthest = math.max(furthest, claim.deadline)
      grant(claim)
      if claim.id ~= actor then
        tell('g', claim, '%.0f %.0f %.0f ', claim.token, claim.deadline, now)
      end
    end
  end
end

-- ---- answers ----

-- Queue::standing. Zero stands for none.
local function standing(claim)
  if claim.token > 0 then
    return {1, now, claim.arrival, claim.token, 0, claim.deadline, 0}
  end
  local position = math.min(waiting, claim.arrival - first_arrival + 1)
  return {1, now, claim.arrival, 0, position, claim.deadline, blocked_until()}
end

-- Queue::raise
local function raise(claim, held, waited)
  local alone = granted == 1
  set_deadline(claim, math.max(claim.deadline, now + (claim.token > 0 and held or waited)))
  furthest = math.max(furthest, claim.deadline)
  if claim.token > 0 and alone then
    earliest = claim.deadline
  end
  return standing(claim)
end
