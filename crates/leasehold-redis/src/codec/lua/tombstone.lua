-- Released ids: until when, whether the claim lives on under another id, the id.
local TOMBSTONE_LIFE, TOMBSTONES = 60000000, 64

-- Queue::tombstone: whether there is one, and whether it was rotated. The search
-- comes first; a hit is confirmed entry by entry.
local function is_buried(id)
  if not string.find(buried, id, 1, true) then
    return false, false
  end
  local at = 1
  while at <= #buried do
    local forget, rotated, other
    forget, rotated, other, at = struct.unpack('<dBBc0', buried, at)
    if other == id and forget > now then
      return true, rotated == 1
    end
  end
  return false, false
end

-- Queue::remember
local function bury(id, rotated)
  if not is_buried(id) then
    buried = buried .. struct.pack('<dBBc0', now + TOMBSTONE_LIFE, rotated and 1 or 0, #id, id)
    buried_count = buried_count + 1
    buried_changed = true
  end
end

-- Queue::forget_buried
local function forget_buried()
  local at = 1
  while buried_count > 0 do
    local forget, _, size = struct.unpack('<dBB', buried, at)
    if buried_count <= TOMBSTONES and forget > now then
      break
    end
    at = at + 10 + size
    buried_count = buried_count - 1
  end
  if at > 1 then
    buried = string.sub(buried, at)
    buried_changed = true
  end
end
