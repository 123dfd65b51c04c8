-- Who is told, and what is answered.

-- The prefix of all keys, and the name of this one.
local function names()
  return string.match(key, '^(.-)lock:(.*)$')
end

-- A line names no claim id; the key comes last, since it may hold spaces. What begins or
-- ends a hold is proved: `Push::of` does the same.
local function tell(kind, claim, format, ...)
  if claim.inbox ~= '' then
    local _, name = names()
    local said = string.format(kind .. ' %.0f ' .. format, claim.arrival, ...)
    local hint = kind == 'n' or kind == 'c'
    local line = '2 ' .. said .. (hint and '' or prove(claim.id, said .. name) .. ' ') .. name
    events[#events + 1] = {kind = kind, claim = claim, inbox = claim.inbox, line = line}
  end
end

local function blocked_until()
  if closed_for > 0 then
    return math.max(granted == 0 and now or earliest, now + closed_for)
  end
  return granted == 0 and now or earliest
end

local function tell_next(claim, blocked)
  tell('n', claim, '%.0f %.0f ', blocked, now)
end

-- Queue::hint
local function hint()
  if waiting > 0 and (shortened or first_before ~= first_arrival) and actor ~= first_waiting then
    tell_next(find(first_waiting), blocked_until())
  end
end

-- ---- lists of inboxes: until when each counts, and its name ----

local function read_inboxes(text, at)
  local list = {}
  while at <= #text do
    local ends, inbox
    ends, inbox, at = struct.unpack('<dBc0', text, at)
    list[#list + 1] = {ends = ends, inbox = inbox, arrival = 0}
  end
  return list
end

-- Those whose time is not over, without this one.
local function still(list, but)
  local kept = {}
  for _, entry in ipairs(list) do
    if entry.ends > now and entry.inbox ~= but then
      kept[#kept + 1] = entry
    end
  end
  return kept, #kept < #list
end

-- Adds them, packed, to these texts.
local function pack_inboxes(list, texts)
  for _, entry in ipairs(list) do
    texts[#texts + 1] = struct.pack('<dBc0', entry.ends, #entry.inbox, entry.inbox)
  end
  return texts
end

-- Those who watch, read when somebody asks. What is over is left out: it means nothing.
local function all_watching()
  if not watching then
    watching = still(read_inboxes(watchers > 0 and call('HGET', key, ' watchers') or '', 1))
    watching_changed = #watching ~= watchers
    watchers = #watching
  end
  return watching
end

local function unwatch(inbox)
  local kept, fewer = still(all_watching(), inbox)
  if fewer then
    watching, watchers, watching_changed = kept, #kept, true
  end
end

-- Queue::watch
local function watch(inbox, ttl)
  unwatch(inbox)
  if ttl > 0 then
    watching[#watching + 1] = {ends = now + ttl, inbox = inbox, arrival = 0}
    watchers, watching_changed = #watching, true
    furthest = math.max(furthest, now + ttl)
  end
end

-- ---- at a member of a set: the highest token that was voided, and who asked in vain ----
local CALLERS, CALLER_LIFE = 64, 3000000

-- Reads them when a step needs them.
local function open_votes()
  if not votes then
    local text = is_hash and call('HGET', key, ' votes') or ''
    votes = {void = text ~= '' and struct.unpack('<d', text) or 0, callers = read_inboxes(text, 9)}
  end
  return votes
end

-- Leaves out those whose time is over, and this one.
local function keep_callers(but)
  local kept, fewer = still(open_votes().callers, but)
  votes.callers, votes.changed = kept, votes.changed or fewer
end

-- Queue::remember_caller
local function remember_caller(inbox)
  keep_callers()
  local ends = now + CALLER_LIFE
  for _, caller in ipairs(votes.callers) do
    if caller.inbox == inbox then
      caller.ends, votes.changed = ends, true
      return
    end
  end
  if #votes.callers < CALLERS then
    table.insert(votes.callers, {ends = ends, inbox = inbox, arrival = 0})
    votes.changed = true
  end
end

-- Queue::call
local function call_first()
  keep_callers()
  if granted + waiting == 0 and #votes.callers > 0 then
    tell('c', table.remove(votes.callers, 1), '%.0f ', now)
    votes.changed = true
  end
end

-- Queue::first_holder: its token and its arrival, to be compared.
local function first_holder()
  local first = granted > 0 and find(first_granted)
  return first and struct.pack('<dd', first.token, first.arrival) or ''
end

-- Queue::tell_watchers. `holder_before` is false where nobody was watching.
local function tell_watchers()
  if holder_before and (noted or first_holder() ~= holder_before) then
    for _, watcher in ipairs(all_watching()) do
      tell('c', watcher, '%.0f ', now)
    end
  end
end
