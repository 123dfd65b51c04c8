-- The end of a step: who hears of it, and what is cut where nobody does.
local UNHEARD_CUT, UNHEARD_ROUNDS = 1000000, 8

-- Queue::unheard; `told` are the claims granted in this step.
local function unheard(inbox, told)
  local cut = now + UNHEARD_CUT
  if watchers > 0 then
    unwatch(inbox)
  end
  for _, claim in ipairs(told) do
    if claim.inbox == inbox then
      set_deadline(claim, math.min(claim.deadline, cut))
      earliest = math.min(earliest, claim.deadline)
    end
  end
  local heir
  local id = first_waiting
  for _ = 1, math.min(waiting, DROPS_PER_STEP) do
    local claim = find(id)
    if claim.inbox == inbox and claim.deadline > cut then
      set_deadline(claim, cut)
    end
    if not heir and claim.deadline > cut and claim.inbox ~= '' then
      heir = claim
    end
    id = claim.next
  end
  events = {}
  if heir then
    tell_next(heir, blocked_until())
  end
  return events[1]
end

-- Tells whoever is next, and those after it while nobody listens. Whether
-- somebody did not.
local function relay(next, rounds)
  local cut = false
  local prefix = names()
  for _ = 1, rounds do
    if not next or publish(prefix, next.inbox, next.line) or not believed then
      break
    end
    next = unheard(next.inbox, {})
    cut = true
  end
  return cut
end

-- Queue::deliver, with one message for all that an inbox should hear.
local function deliver()
  local order, lines, told, next = {}, {}, {}, nil
  for _, event in ipairs(events) do
    if event.kind == 'n' then
      next = next or event
    else
      if not lines[event.inbox] then
        order[#order + 1] = event.inbox
        lines[event.inbox] = event.line
      else
        lines[event.inbox] = lines[event.inbox] .. '\n' .. event.line
      end
      if event.kind == 'g' or event.kind == 'f' then
        told[#told + 1] = event.claim
      end
    end
  end
  local cut, prefix = false, names()
  for i, inbox in ipairs(order) do
    local text = lines[inbox]
    local both = i == #order and next and next.inbox == inbox
    if both then
      text = text .. '\n' .. next.line
    end
    if not publish(prefix, inbox, text) and believed then
      next = unheard(inbox, told)
      cut = true
    elseif both then
      next = nil
    end
  end
  return relay(next, UNHEARD_ROUNDS) or cut
end

-- Queue::apply, after the verb.
local function conclude()
  tell_watchers()
  hint()
  if granted + waiting == 0 then
    capacity = 0
  end
end

-- Writes the record and delivers the events; answers an error if nothing could
-- be written.
local function commit(must)
  local refused = save(must)
  if refused then
    return refused
  end
  if #events > 0 and deliver() then
    save(true)
  end
end

local function pack_answer(answer)
  return struct.pack('<B' .. string.rep('d', #answer - 1), unpack(answer))
end
