-- Changes the number of permits of a semaphore in use. The twin of `Queue::resize`.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  the permits there are
-- ARGV[2]  the permits there shall be
-- ARGV[3]  flags: 4 the count of PUBLISH can be believed, and the way
-- ARGV[4]  retention, in microseconds
--
-- Returns  10, at                               resized
--          5, at                                absent
--          6, at, permits in use or -1 for a lock  mismatch
--          packed as one byte and doubles, or the error LHTYPE, LHVERSION, OOM
local key, flags = KEYS[1], ARGV[3] + 0
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
  local from, to = ARGV[1] + 0, ARGV[2] + 0
  promote()
  reclaim()
  local answer = {5, now}
  if granted + waiting > 0 then
    if capacity == from or capacity == to then
      capacity = to
      promote()
      answer = {10, now}
    else
      answer = {6, now, capacity}
    end
  end
  return finish(answer, false, ARGV[4] + 0, flags % 8 >= 4)
end
return step()
