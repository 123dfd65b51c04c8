-- Part 1 of 3, the claims: the head of a record, its two lists, and the released ids.
--
-- The three parts together are the twin of `Queue` in leasehold-core/src/queue.rs:
-- the same names, the same order, the same answers. Change both or neither. They
-- work on the record in memory and write it once, in `save`. The short paths
-- above them in each script are this code with an empty or simple queue put in.
local LOCK = 1048576
local PROMOTED_FLOOR, UNHEARD_CUT, TOMBSTONE_LIFE = 3000000, 1000000, 60000000
local DROPS_PER_STEP, UNHEARD_ROUNDS, TOMBSTONES = 256, 8, 64

-- The head. `capacity` is -1 for a lock, the permits of a semaphore, 0 for none.
local capacity, used, earliest = 0, 0, 0
local granted, first_granted, last_granted = 0, '', ''
local waiting, first_waiting, last_waiting = 0, '', ''
-- What promotion asks of the first waiting claim, so that it need not be read.
local first_arrival, first_deadline, first_weight = 0, 0, 0
local buried = ''

local claims, changed, gone = {}, {}, {}
local is_hash, buried_changed = false, false

local function units()
  return capacity == -1 and LOCK or capacity
end

-- ---- one claim ----

-- `body` is what never changes: mode, inbox, owner.
local function new_claim(id, body)
  local kind, of, weight, inbox = struct.unpack('<BI4I4Bc0', body)
  return {id = id, capacity = kind == 2 and of or -1, weight = weight, inbox = inbox, body = body}
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

-- ---- the two lists: granted in order of tokens, waiting in order of arrival ----
-- The links beyond the ends of a list are stale: the head says where it ends.

local function bridge(claim, first, last)
  if claim.id ~= first then
    local prev = find(claim.prev)
    prev.next = claim.next
    touch(prev)
  end
  if claim.id ~= last then
    local next = find(claim.next)
    next.prev = claim.prev
    touch(next)
  end
  return claim.id == first and claim.next or first, claim.id == last and claim.prev or last
end

local function unlink(claim)
  if claim.token > 0 then
    used = used - claim.weight
    granted = granted - 1
    if granted == 0 then
      first_granted, last_granted = '', ''
    else
      first_granted, last_granted = bridge(claim, first_granted, last_granted)
    end
  else
    waiting = waiting - 1
    if waiting == 0 then
      first_waiting, last_waiting = '', ''
    else
      local first = first_waiting
      first_waiting, last_waiting = bridge(claim, first_waiting, last_waiting)
      if first ~= first_waiting then
        note_first()
      end
    end
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

-- Queue::remove
local function remove(claim)
  unlink(claim)
  claims[claim.id], changed[claim.id], gone[claim.id] = false, nil, true
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

-- ---- released ids: 8 bytes until when, then the id ----

-- Queue::is_buried. The search comes first; a hit is confirmed entry by entry.
local function is_buried(id)
  if not string.find(buried, id, 1, true) then
    return false
  end
  local at = 1
  while at <= #buried do
    local forget, other
    forget, other, at = struct.unpack('<dBc0', buried, at)
    if other == id and forget > now then
      return true
    end
  end
  return false
end

-- Queue::bury_id
local function bury(id)
  if not is_buried(id) then
    buried = buried .. struct.pack('<dBc0', now + TOMBSTONE_LIFE, #id, id)
    buried_count = buried_count + 1
    buried_changed = true
  end
end

-- Queue::forget_buried
local function forget_buried()
  local at = 1
  while buried_count > 0 do
    local forget, size = struct.unpack('<dB', buried, at)
    if buried_count <= TOMBSTONES and forget > now then
      break
    end
    at = at + 9 + size
    buried_count = buried_count - 1
  end
  if at > 1 then
    buried = string.sub(buried, at)
    buried_changed = true
  end
end
