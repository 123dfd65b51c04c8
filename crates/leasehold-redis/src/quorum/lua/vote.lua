-- What `acquire` and `extend` share, whose arguments are the same:
--
-- ARGV[1]   claim id
-- ARGV[2]   token
-- ARGV[3]   TTL, in microseconds
-- ARGV[4]   flags: 1 is to be woken when the key is released, 2 is taken up again
--           where it is not voted for any more
-- ARGV[5]   how far ahead of this clock a token may be, in microseconds
-- ARGV[6]   retention, in microseconds
-- ARGV[7]   the run id of this server, read on the same connection
-- ARGV[8]   the name of the set
-- ARGV[9]   quarantine, in microseconds
-- ARGV[10]  the claim's inbox at this server
-- ARGV[11]  owner: pid u32, host text, label text
-- ARGV[12]  note, or nothing
-- ARGV[13]  with an audit log, KEYS[3]: how much of it is kept, as audit.lua counts
local log = KEYS[3]
-- include notes.lua
local id, wanted, ttl, flags, retention = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[6] + 0

-- Node::raise
local function raise()
  deadline = math.max(deadline, now + ttl)
  local noted = note ~= ARGV[12]
  inbox, owner, note = ARGV[10], ARGV[11], ARGV[12]
  save(retention, true)
  if noted then
    tell_watchers()
  end
  return struct.pack('<Bd', 1, now)
end

-- Node::acquire. A vote that a renewal brings back is not noted.
local function acquire(renews)
  if live and holder == id then
    if inbox ~= ARGV[10] then
      return struct.pack('<Bd', 6, now)
    elseif token == wanted then
      return raise()
    end
  end
  local ceiling = math.max(highest() + 1, now + ARGV[5])
  if wanted > ceiling then
    return struct.pack('<Bdd', 4, now, wanted - ceiling)
  end
  if live and holder ~= id then
    if flags % 2 == 1 then
      local known
      for _, ear in ipairs(waiting) do
        if ear.inbox == ARGV[10] then
          known = ear
        end
      end
      if known then
        known.ends = math.max(known.ends, now + 3000000)
      elseif #waiting < 64 then
        waiting[#waiting + 1] = {ends = now + 3000000, inbox = ARGV[10]}
      end
      save(retention, false)
    end
    return struct.pack('<Bddd', 2, now, deadline - now, highest())
  end
  if wanted <= released or not (wanted > accepted or (wanted == accepted and proposer == id)) then
    return struct.pack('<Bdd', 3, now, highest())
  end
  local upgraded = live
  if log and token > 0 and (holder ~= id or token ~= wanted) then
    note_end(id)
  end
  accepted, proposer = wanted, id
  token, holder, deadline, since = wanted, id, now + ttl, now
  inbox, owner, note = ARGV[10], ARGV[11], ARGV[12]
  drop(waiting, inbox)
  save(retention, false)
  if not upgraded then
    tell_watchers()
  end
  if log then
    if not renews then
      note_vote()
    end
    write_notes(ARGV[13])
  end
  return struct.pack('<Bd', 1, now)
end
