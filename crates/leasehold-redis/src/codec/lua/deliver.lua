-- The end of a step: who hears of it, and who is passed over where nobody does.
local UNHEARD_CUT, UNHEARD_ROUNDS = 1000000, 8

-- Queue::pass_over
local function pass_over(told, passed)
  local any = false
  for _, claim in ipairs(told) do
    if is_passed(claim, passed) then
      step_back(claim)
      claim.since = claim.joined
      if claim.min_hold then
        claim.renewed = 0
        repack(claim, who(claim))
      end
      any = true
    end
  end
  if any then
    promote(passed)
  end
end

-- Queue::unheard; `told` are the claims of the silent that were granted just now.
local function unheard(silent, told, passed)
  local cut, id = now + UNHEARD_CUT, first_waiting
  events, actor, noted = {}, '', false
  drops_left, followers_left = DROPS_PER_STEP, FOLLOWERS_PER_STEP
  if watchers > 0 then
    holder_before = first_holder()
    for inbox in pairs(silent) do
      unwatch(inbox)
    end
  end
  for _ = 1, math.min(waiting, DROPS_PER_STEP) do
    local claim = find(id)
    if silent[claim.inbox] then
      set_deadline(claim, math.min(claim.deadline, cut))
    end
    id = claim.next
  end
  for _, claim in ipairs(told) do
    set_deadline(claim, math.min(claim.deadline, cut))
    earliest = math.min(earliest, claim.deadline)
  end
  pass_over(told, passed)
  id = first_waiting
  for _ = 1, math.min(waiting, DROPS_PER_STEP) do
    local claim = find(id)
    if claim.deadline > cut and claim.inbox ~= '' then
      tell_next(claim, blocked_until())
      break
    end
    id = claim.next
  end
  if is_hash and granted + waiting == 0 then
    call_first()
  end
  tell_watchers()
end

-- Says what there is to say, in one message to an inbox. Answers the claims whose grants went
-- unheard, or nil if all was heard. Who is next is another where something was not.
local function speak(silent)
  local order, lines, granted, next, missed = {}, {}, {}, nil, nil
  for _, event in ipairs(events) do
    local inbox, before = event.inbox, lines[event.inbox]
    if event.kind == 'n' then
      next = next or event
    else
      order[#order + 1] = not before and inbox or nil
      lines[inbox] = before and before .. '\n' .. event.line or event.line
      if event.kind == 'g' or event.kind == 'f' then
        granted[#granted + 1] = event.claim
      end
    end
  end
  local prefix = names()
  local function say(inbox, text)
    if silent[inbox] or not publish(prefix, inbox, text) and believed then
      silent[inbox], missed = true, {}
    end
  end
  for i, inbox in ipairs(order) do
    local text = lines[inbox]
    if i == #order and next and next.inbox == inbox and not missed then
      text, next = text .. '\n' .. next.line, nil
    end
    say(inbox, text)
  end
  if next and not missed then
    say(next.inbox, next.line)
  end
  for _, claim in ipairs(missed and granted or {}) do
    missed[#missed + 1] = silent[claim.inbox] and claim or nil
  end
  return missed
end

-- Queue::deliver. `missed`: whose grants the silent have not heard of already. Answers whether
-- anything has changed.
local function deliver(silent, missed)
  local passed, rounds = {}, 0
  missed = missed or speak(silent)
  while missed and rounds < UNHEARD_ROUNDS do
    rounds = rounds + 1
    for _, claim in ipairs(missed) do
      passed[claim.inbox] = passed[claim.inbox]
        or not behind(claim) and (claim.listens or claim.joined + UNHEARD_CUT <= now)
    end
    unheard(silent, missed, rounds < UNHEARD_ROUNDS and passed or {})
    missed = rounds < UNHEARD_ROUNDS and speak(silent)
  end
  return rounds > 0
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
  values.saved = true
  if #events > 0 and deliver({}) then
    save(true)
  end
end

local function pack_answer(answer)
  return struct.pack('<B' .. string.rep('d', #answer - 1), unpack(answer))
end
