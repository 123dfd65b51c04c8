-- Takes a key from all who hold it, after raising the token.
-- The twin of `Queue::break_all`.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  flags: 4 the count of PUBLISH can be believed, and the way
-- ARGV[2]  retention, in microseconds
--
-- Returns  7, at, how many held, the raised token: tokens up to it are void
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION
local key, flags = KEYS[1], ARGV[1] + 0
-- include time.lua
-- include way.lua
-- include open.lua
-- include state.lua
local function step()
-- include queue.lua
  local failed = open('')
  if failed then
    return failed
  end
  local raised = next_token()
  last_token = raised
  local held = {}
  local id = first_granted
  for i = 1, granted do
    held[i] = find(id)
    id = held[i].next
  end
  for _, claim in ipairs(held) do
    remove(claim)
    bury(claim.id)
    forget_buried()
    tell('r', claim, '%.0f ', now)
  end
  promote()
  return finish({7, now, #held, raised}, true, ARGV[2] + 0, flags % 8 >= 4)
end
return step()
