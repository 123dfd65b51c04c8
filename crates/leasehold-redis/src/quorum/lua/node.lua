-- The record of `key` at one of several servers: the core's `Node`.
--
--   'l' 'q' · version u8 = 1 · accepted, released, token, deadline, since f64
--   · proposer, id, inbox text · owner, note (u16 of length and so many bytes)
--   · how many wait u8, each: until f64, inbox text · watchers likewise
--
-- little-endian; `text` is a u8 of length and so many bytes; a token of 0 is none;
-- times are microseconds since 1970, by this server's clock.
local now = clock
local raw = call('MGET', key)[1]
local accepted, released, token, deadline, since = 0, 0, 0, 0, 0
local proposer, holder, inbox, owner, note = '', '', '', '', ''
local waiting, watchers = {}, {}
if raw then
  local l, q, version = 0, 0, 0
  if #raw >= 52 then
    l, q, version = struct.unpack('<BBB', raw)
  end
  if l ~= 108 or q ~= 113 then
    return {err = 'LHTYPE string'}
  elseif version ~= 1 then
    return {err = 'LHVERSION ' .. version}
  end
  local at
  accepted, released, token, deadline, since, proposer, holder, inbox, owner, note, at =
    struct.unpack('<dddddBc0Bc0Bc0I2c0I2c0', raw, 4)
  -- Node::forget
  local function ears(list)
    local count
    count, at = struct.unpack('<B', raw, at)
    for _ = 1, count do
      local ends, name
      ends, name, at = struct.unpack('<dBc0', raw, at)
      if ends > now then
        list[#list + 1] = {ends = ends, inbox = name}
      end
    end
  end
  ears(waiting)
  ears(watchers)
elseif call('EXISTS', key) == 1 then
  return {err = 'LHTYPE ' .. call('TYPE', key).ok}
end

-- Node::live
local live = token > 0 and deadline > now
local function highest()
  return math.max(accepted, released)
end

-- Writes the record. What only lets go or holds on works when the memory is full.
local function save(retention, firm)
  local function pack(list)
    local packed = {struct.pack('<B', #list)}
    for _, ear in ipairs(list) do
      packed[#packed + 1] = struct.pack('<dBc0', ear.ends, #ear.inbox, ear.inbox)
    end
    return table.concat(packed)
  end
  local record = struct.pack('<BBBdddddBc0Bc0Bc0I2c0I2c0', 108, 113, 1, accepted, released, token, deadline, since,
    #proposer, proposer, #holder, holder, #inbox, inbox, #owner, owner, #note, note) .. pack(waiting) .. pack(watchers)
  local keep = math.ceil((math.max(deadline - now, 0) + retention) / 1000)
  if firm then
    if redis.pcall('SET', key, record, 'PX', keep).err then
      call('PEXPIRE', key, keep)
      call('SET', key, record, 'PX', keep)
    end
  else
    call('SET', key, record, 'PX', keep)
  end
end

-- include tell.lua
-- Tells an inbox; whether anybody may have heard it. What ends a hold is proved by the
-- claim's id.
local prefix, name = string.match(key, '^(.-)lock:(.*)$')
local function tell(who, kind, arrival, id)
  if string.sub(who, 1, 1) == '-' then
    return false
  end
  local said = string.format('%s %.0f %.0f ', kind, arrival, now)
  return publish(prefix, who, '2 ' .. said .. (id and prove(id, said .. name) .. ' ' or '') .. name)
end
local function tell_watchers()
  for _, ear in ipairs(watchers) do
    tell(ear.inbox, 'c', 0)
  end
end
-- Node::wake
local function wake()
  while #waiting > 0 do
    if tell(table.remove(waiting, 1).inbox, 'c', 0) then
      return
    end
  end
end
local function drop(list, who)
  for at = #list, 1, -1 do
    if list[at].inbox == who then
      table.remove(list, at)
    end
  end
end
