-- Lets an inbox hear when another holds first, or its note has changed.
-- The twin of `Queue::watch`.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  inbox
-- ARGV[2]  for how long, in microseconds; 0 for no longer
-- ARGV[3]  retention, in microseconds
--
-- Returns  11, at  done
--          packed as one byte and a double, or the error LHTYPE, LHVERSION, OOM
local key = KEYS[1]
-- include time.lua
-- include open.lua
-- include state.lua
local function step()
-- include queue.lua
  local failed = open('')
  if failed then
    return failed
  end
  local ttl = ARGV[2] + 0
  watch(ARGV[1], ttl)
  return finish({11, now}, ttl == 0, ARGV[3] + 0, false)
end
return step()
