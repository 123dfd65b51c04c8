-- Where a claim stands.

-- Queue::standing. Zero stands for none.
local function standing(claim)
  if claim.token > 0 then
    local ahead = behind(claim)
    local place = ahead and math.min(granted - 1, claim.arrival - find(first_granted).arrival) or 0
    return {1, now, claim.arrival, claim.token, place, claim.deadline, ahead or 0}
  end
  local position = math.min(waiting, claim.arrival - first_arrival + 1) + followers()
  return {1, now, claim.arrival, 0, position, claim.deadline, blocked_until()}
end

-- Queue::raise
local function raise(claim, held, waited)
  local alone, deadline = granted == 1, now + waited
  if claim.token > 0 then
    -- `unheard` may have cut it below its minimum hold.
    local ttl = behind(claim) and waited or held
    deadline = math.max(now + ttl, claim.since + (claim.min_hold or 0))
    note_renewal(claim, now + ttl)
  elseif claim.listens ~= listens then
    claim.listens = listens
    repack(claim, who(claim))
  end
  set_deadline(claim, math.max(claim.deadline, deadline))
  furthest = math.max(furthest, claim.deadline)
  if claim.token > 0 and alone then
    earliest = claim.deadline
  end
  return standing(claim)
end
