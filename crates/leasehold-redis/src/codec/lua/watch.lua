-- Lets an inbox hear when another holds first, or its note has changed.
-- The twin of `Queue::watch`.
--
-- KEYS[1]  <prefix>lock:<name>
-- ARGV[1]  inbox
-- ARGV[2]  for how long, in microseconds; 0 for no longer
-- ARGV[3]  flags: the way
-- ARGV[4]  retention, in microseconds
--
-- Returns  11, at  done
--          packed as one byte and a double, or the error LHTYPE, LHVERSION, OOM
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
  local ttl, retention = ARGV[2] + 0, ARGV[4] + 0
  watch(ARGV[1], ttl)
  -- Queue::is_blank, by and large: who watches a key that nobody uses leaves nothing.
  if last_token == 0 and last_arrival == 0 and buried_count == 0 and granted + waiting == 0 then
    if watchers == 0 then
      call('PEXPIRE', key, 0)
      return pack_answer({11, now})
    end
    -- What the record says of its end is made true again, also where it said more.
    retention, expires = math.min(retention, 60000000), 0
  end
  return finish({11, now}, ttl == 0, retention, false)
end
return step()
