-- What a step knows of `key` besides the start of its record.
--
-- Each script puts the queue and its verb into a function below: a new function
-- finds what belongs to a function further out at once, but searches for what
-- belongs to the very one that makes it. The search cost more than the step.

-- The head. `capacity` is -1 for a lock, the permits of a semaphore, 0 for none.
local capacity, used, earliest = 0, 0, 0
local granted, first_granted, last_granted = 0, '', ''
local waiting, first_waiting, last_waiting = 0, '', ''
-- What promotion asks of the first waiting claim, so that it need not be read.
local first_arrival, first_deadline, first_weight = 0, 0, 0
local watchers = 0
local is_hash = false
-- The step: whom it is about, and what it found.
local actor, first_before, holder_before, noted, shortened = '', false, false, false, false
