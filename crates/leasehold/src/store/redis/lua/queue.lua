-- The queue of `key`: the twin of `Queue` in leasehold-core/src/queue.rs, with the
-- same names, the same order, the same answers. Change both or neither. It works
-- on the record in memory and writes it once, in `save`. The short paths above it
-- in some scripts are this code with an empty or simple queue put in.
--
-- The head. `capacity` is -1 for a lock, the permits of a semaphore, 0 for none.
local capacity, used, earliest = 0, 0, 0
local granted, first_granted, last_granted = 0, '', ''
local waiting, first_waiting, last_waiting = 0, '', ''
-- What promotion asks of the first waiting claim, so that it need not be read.
local first_arrival, first_deadline, first_weight = 0, 0, 0
local watchers = 0
local is_hash = false
-- The step: whom it is about, and what it found.
local actor, first_before, holder_before, noted = '', false, false, false

-- include entry.lua
-- include list.lua
-- include tombstone.lua
-- include told.lua
-- include rule.lua
-- include record.lua
-- include deliver.lua
