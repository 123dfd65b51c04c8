-- What administrators and onlookers do.

-- Those of the granted claims.
local function granted_by(like)
  local found, id = {}, first_granted
  for _ = 1, granted do
    local claim = find(id)
    if like(claim) then
      found[#found + 1] = claim
    end
    id = claim.next
  end
  return found
end

-- Queue::revoke; `by`: the client that does it.
local function revoke(claim, by)
  if claim.deadline > now then
    audit('k', claim, claim.since, 0, by)
  end
  remove(claim)
  bury(claim.id)
  forget_buried()
  tell('r', claim, '%.0f ', now)
end

-- Takes a key from all such claims that are granted: how many.
local function revoke_all(like, by)
  local held = granted_by(like)
  for _, claim in ipairs(held) do
    revoke(claim, by)
  end
  promote()
  return #held
end

-- Queue::break_holds: takes a key from all who hold it, or who hold by one token, after raising the
-- token. Works when the memory is full.
local function break_holds(command)
  local _, only = struct.unpack('<Bd', command)
  if only > 0 then
    promote()
    reclaim()
    local named = granted_by(function(claim)
      return claim.token == only and not behind(claim)
    end)
    if #named == 0 then
      return {7, now, 0, last_token}, true
    end
  end
  local raised = next_token()
  last_token = raised
  reclaim()
  disband(0)
  local held = revoke_all(function(claim)
    return only == 0 or claim.token == only
  end, string.sub(command, 10))
  return {7, now, held, raised}, true
end

-- Queue::resize: changes the number of permits of a semaphore in use.
local function resize(command)
  local _, from, to = struct.unpack('<BI4I4', command)
  promote()
  reclaim()
  if granted + waiting == 0 then
    return {5, now}, false
  elseif capacity ~= from and capacity ~= to then
    return {6, now, capacity}, false
  end
  if note and capacity ~= to then
    note('s', key, now, 0, 0, from, to, '', '')
  end
  capacity = to
  promote()
  return {10, now}, false
end

-- Queue::watch: lets an inbox hear when another holds first, or its note has changed.
local function watch_key(command)
  local _, ttl, inbox = struct.unpack('<BdBc0', command)
  watch(inbox, ttl)
  if ttl == 0 and is_hash then
    keep_callers(inbox)
  end
  -- Queue::is_blank, by and large: in a cluster, too, who watches a key that nobody uses leaves
  -- nothing.
  if in_cluster and last_token + last_arrival + buried_count + granted + waiting == 0
    and open_votes().void + #votes.callers == 0 then
    -- What the record says of its end is made true again, also where it said more.
    SPARE, expires = watchers > 0 and math.min(SPARE, 60000000) or 0, 0
  end
  return {11, now}, ttl == 0
end
