-- One step on a classic lock: a string whose value is the id of the claim that
-- holds.
--
-- KEYS[1]  <prefix><name>
-- ARGV[1]  first (a claim that was never asked for), claim, renew, release, break
-- ARGV[2]  claim id
-- ARGV[3]  TTL, in milliseconds
--
-- Returns  1, left    it is this claim's; of release and break: it was
--          2, left    it is another's
--          3, left    it is this claim's, and another client's
--          4, 0       nobody's
--          left is in milliseconds, -1 for ever; or the error LHTYPE, LHNATIVE
local key, verb, id, ttl = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local kind = redis.call('TYPE', key).ok
if kind == 'none' then
  if verb == 'first' or verb == 'claim' then
    redis.call('SET', key, id, 'PX', ARGV[3])
    return {1, ttl}
  end
  return {4, 0}
elseif kind ~= 'string' then
  return {err = 'LHTYPE ' .. kind}
end
local value, left = redis.call('GET', key), redis.call('PTTL', key)
-- A native record, of any version.
if string.find(value, '^l[hq][\1-\31]') then
  return {err = 'LHNATIVE string'}
elseif verb == 'break' then
  redis.call('DEL', key)
  return {1, 0}
elseif value ~= id then
  return {2, left}
elseif verb == 'first' then
  return {3, left}
elseif verb == 'release' then
  redis.call('DEL', key)
  return {1, 0}
elseif left < ttl then
  redis.call('PEXPIRE', key, ARGV[3])
  left = ttl
end
return {1, left}
