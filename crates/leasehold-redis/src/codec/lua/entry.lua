-- One claim: how it is read and packed. `record.rs` documents the body.
local LISTENS, RUNS, SECRET, MIN_HOLD, NOTE, ROTATED, KEPT = 1, 2, 4, 8, 16, 32, 64

-- `body` is what hardly ever changes: capacity, weight, inbox, owner, and what only some have.
local function new_claim(id, body)
  local traits, of, weight, inbox = struct.unpack('<BI4I4Bc0', body)
  local claim = {id = id, capacity = of > 0 and of or -1, weight = weight, inbox = inbox, body = body,
    listens = traits % 2 >= LISTENS, runs = traits % 4 >= RUNS}
  if traits > 3 then
    local has = function(trait)
      return bit.band(traits, trait) > 0
    end
    local _, at
    _, _, _, _, at = struct.unpack('<Bc0I4Bc0Bc0', body, 10)
    if has(SECRET) then
      claim.secret, at = struct.unpack('<Bc0', body, at)
    end
    if has(MIN_HOLD) then
      claim.min_hold, claim.renewed, at = struct.unpack('<dd', body, at)
    end
    if has(NOTE) then
      claim.note, at = struct.unpack('<I2c0', body, at)
    end
    if has(ROTATED) then
      claim.version, claim.previous = struct.unpack('<dBc0', body, at)
    end
    claim.kept = has(KEPT)
  end
  return claim
end

local function parse(id, text)
  local next, prev, arrival, token, deadline, since, at = struct.unpack('<Bc0Bc0dddd', text)
  local claim = new_claim(id, string.sub(text, at))
  claim.next, claim.prev, claim.arrival, claim.token = next, prev, arrival, token
  claim.deadline, claim.since = deadline, since
  return claim
end

local function find(id)
  local claim = claims[id]
  if claim == nil then
    local text = is_hash and call('HGET', key, id)
    claim = text and parse(id, text)
    claims[id] = claim
  end
  return claim
end

local function touch(claim)
  changed[claim.id] = claim
end

-- Inbox and owner, as they stand in the body.
local function who(claim)
  local _, _, _, _, at = struct.unpack('<Bc0I4Bc0Bc0', claim.body, 10)
  return string.sub(claim.body, 10, at - 1)
end

-- Packs the body anew after a change.
local function repack(claim, who)
  local traits, tail = (claim.listens and LISTENS or 0) + (claim.runs and RUNS or 0), ''
  if claim.secret then
    traits, tail = traits + SECRET, tail .. struct.pack('<Bc0', #claim.secret, claim.secret)
  end
  if claim.min_hold then
    traits, tail = traits + MIN_HOLD, tail .. struct.pack('<dd', claim.min_hold, claim.renewed)
  end
  if claim.note then
    traits, tail = traits + NOTE, tail .. struct.pack('<I2c0', #claim.note, claim.note)
  end
  if claim.version then
    traits, tail = traits + ROTATED, tail .. struct.pack('<dBc0', claim.version, #claim.previous, claim.previous)
  end
  if claim.kept then
    traits = traits + KEPT
  end
  claim.body = struct.pack('<BI4I4', traits, math.max(claim.capacity, 0), claim.weight) .. who .. tail
  touch(claim)
end

-- Entry::note_renewal
local function note_renewal(claim, ends)
  if claim.min_hold then
    claim.renewed = math.max(claim.renewed, ends)
    repack(claim, who(claim))
  end
end
