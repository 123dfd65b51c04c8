-- The vote of a member of a set, which a claim asks for with a token of its own.

-- Queue::propose
local function propose(command)
  local _, flags, lease_ttl, waiter_ttl, id, token, ahead, body_at = struct.unpack('<BBddBc0dd', command)
  local claim, wanted = live(id), new_claim(id, string.sub(command, body_at))
  if claim and claim.inbox ~= wanted.inbox then
    return {9, now}, true
  elseif claim and claim.token == token then
    if wanted.note then
      set_note(claim, wanted.note)
    end
    return raise(claim, lease_ttl, waiter_ttl), true
  elseif not claim and is_buried(id) then
    return {3, now}, false
  elseif closed_for > 0 then
    return {12, now, now + closed_for}, false
  end
  promote()
  reclaim()
  local highest = math.max(last_token, open_votes().void)
  local most = math.max(highest + 1, clock + ahead)
  local outbid = {13, now, highest, most}
  if token > most then
    return outbid, false
  elseif granted + waiting > (claim and 1 or 0) then
    if flags % 2 >= 1 and wanted.inbox ~= '' then
      remember_caller(wanted.inbox)
    end
    return {2, now, blocked_until()}, false
  elseif token <= highest then
    return outbid, false
  end
  if claim then
    audit('b', claim, 0, 0)
    remove(claim)
  end
  wanted.arrival, wanted.since, wanted.deadline = token, now, now + lease_ttl
  last_arrival, furthest = math.max(last_arrival, token), math.max(furthest, wanted.deadline)
  last_token, capacity, used = token, wanted.capacity, used + wanted.weight
  hold(wanted, token)
  keep_callers(wanted.inbox)
  return standing(wanted), false
end

-- Queue::void. Works when the memory is full.
local function void(command)
  local _, flags, up_to, id, at = struct.unpack('<BBdBc0', command)
  if up_to > open_votes().void then
    votes.void, votes.changed = up_to, true
  end
  if flags >= 2 then
    reclaim()
    local held = revoke_all(function(claim)
      return claim.token <= up_to
    end, string.sub(command, at))
    call_first()
    return {7, now, held, up_to}, true
  end
  local claim, released = live(id), flags % 2 >= 1
  local held = claim and claim.token > 0
  if held then
    audit(released and 'r' or 'b', claim, released and claim.since or 0, 0)
  end
  if claim then
    remove(claim)
  end
  if released then
    bury(id)
  end
  forget_buried()
  promote()
  if held and released then
    call_first()
  end
  return claim and {4, now, held and 1 or 0} or {5, now}, true
end
