-- Queue::release: leaves, holding or waiting; unless settled, the id stays released. Works when
-- the memory is full.
local function release(command)
  local _, flags, id = struct.unpack('<BBBc0', command)
  local hand_off, settled, unused = flags % 2 >= 1, flags % 4 >= 2, flags % 16 >= 8
  local claim = live(id)
  if claim and claim.kept then
    claim = nil
  end
  local answer, held, kept = {5, now}, false, false
  if claim then
    held = claim.token > 0
    if unused then
      claim.min_hold = nil
    end
    answer = {4, now, held and 1 or 0}
    kept = vacate(claim)
    if held then
      audit('r', claim, claim.since, kept and claim.deadline or 0)
    end
  end
  if not settled then
    bury(id)
  end
  forget_buried()
  if hand_off or not held then
    promote()
  elseif waiting > 0 and not kept then
    -- It may come and take the key.
    tell_next(find(first_waiting), now + closed_for)
  end
  return answer, true
end
