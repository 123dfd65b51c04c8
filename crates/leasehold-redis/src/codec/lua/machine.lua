-- The queue of a key at length: the twin of `Queue` in leasehold-core/src/queue.rs, with the
-- same names, the same order, the same answers. Change both or neither. It works on the record
-- in memory and writes it once, in `save`.
local function machine()
  -- A function finds what belongs to a function further out at once, but what belongs to the
  -- very one that makes it is searched for, which costs more than many a step.
  local key, raw, is_hash, earlier, now
  local last_seen, offset, last_arrival, furthest, expires = 0, 0, 0, 0, 0
  -- `capacity` is -1 for a lock, the permits of a semaphore, 0 for none.
  local capacity, used, earliest = 0, 0, 0
  local granted, first_granted, last_granted = 0, '', ''
  local waiting, first_waiting, last_waiting = 0, '', ''
  -- What promotion asks of the first waiting claim, so that it need not be read.
  local first_arrival, first_deadline, first_weight = 0, 0, 0
  -- By id: claims that were read (false: known not to be there), changed, removed.
  local claims, changed, gone
  -- The waiting claims of each owner; released ids; those who watch, once they were read.
  local siblings, siblings_changed
  local buried, buried_count, buried_changed
  local watchers, watching, watching_changed
  -- Of a member of a set, once they were read.
  local votes
  -- The step: whom it is about, what it found, and what is to be told.
  local actor, finder, first_before, holder_before, noted, shortened, drops_left, followers_left, events

  local function make()
-- include entry.lua
-- include list.lua
-- include tombstone.lua
-- include told.lua
-- include run.lua
-- include rule.lua
-- include standing.lua
-- include record.lua
-- include deliver.lua
-- include claim.lua
-- include renew.lua
-- include release.lua
-- include admin.lua
-- include vote.lua
    local verbs = {claim, renew, release, break_holds, resize, watch_key, propose, void}
    -- Where commands have their id.
    local ids = {19, 11, 3, [7] = 19, [8] = 11}

    -- Takes a step; answers what to say. `dry`: nothing is written. `may_force`: where a step must
    -- be written, it is even if the memory is full.
    return function(at, dry, may_force)
      local command = ARGV[at + 2]
      local verb = string.byte(command)
      local failed = open(KEYS[at], values[at], ids[verb] and unpack_from('<Bc0', command, ids[verb]) or '')
      if failed then
        return failed
      end
      local answer, must = verbs[verb](command)
      conclude()
      return not dry and commit(must and may_force) or pack_answer(answer), answer, must
    end,
    -- The lean way has told somebody who does not hear: of this grant, or that it is next.
    function(key, inbox, heir)
      open(key, nil, '')
      local missed = {heir and find(heir.id)}
      for _, claim in ipairs(missed) do
        claim.joined = heir.joined
      end
      deliver({[inbox] = true}, missed)
      save(true)
    end
  end
  return make()
end
