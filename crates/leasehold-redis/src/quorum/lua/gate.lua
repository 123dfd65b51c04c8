-- Whether this server may vote, or the answer that says why not.
-- include marker.lua
local function gate(run, set, quarantine)
  local left = admit(KEYS[2], struct.pack('<dBc0Bc0', quarantine, #run, run, #set, set))
  if not left then
    return struct.pack('<Bd', 8, now)
  elseif left ~= 0 then
    -- An error is answered as it is.
    return type(left) == 'table' and left or struct.pack('<Bdd', 7, now, left)
  end
end
