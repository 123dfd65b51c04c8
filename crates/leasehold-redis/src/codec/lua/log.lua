-- Reads the audit log, where the server is that has it.
--
-- KEYS[1]  the log
-- ARGV[1]  from which entry on
-- ARGV[2]  how many at most
-- returns  as XRANGE does
return redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
