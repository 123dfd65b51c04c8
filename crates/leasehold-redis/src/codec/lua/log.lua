-- Reads the audit log, where the server is that has it.
--
-- KEYS[1]  the log
-- ARGV[1]  from which entry on
-- ARGV[2]  how many at most
-- returns  as XRANGE does, or the error LHTYPE
local entries = redis.pcall('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
if entries.err and string.find(entries.err, 'WRONGTYPE', 1, true) then
  return {err = 'LHTYPE log'}
end
return entries
