-- One step on a fenced value: compares the token, then writes.
--
-- KEYS[1]  the value's key: a hash of `token` (decimal text) and `value`
-- ARGV[1]  get, or set, claim, clear
-- ARGV[2]  the token, decimal text without leading zeros
-- ARGV[3]  how long to keep it from now, in ms; 0 for ever
-- ARGV[4]  the value
--
-- Returns  1, highest token, value or nil   done
--          0, highest token, nil            fenced: it is higher, nothing was written
--          2, what is there, nil            not a fenced value, nothing was written
local key, verb, token, keep, value = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- A double is exact up to 2^53, a token goes up to 2^64: compare in two halves.
-- As text is no way out, for its order is a matter of the server's locale.
local function is_below(a, b)
  a, b = string.rep('0', 20 - #a) .. a, string.rep('0', 20 - #b) .. b
  local a_high, b_high = tonumber(string.sub(a, 1, 10)), tonumber(string.sub(b, 1, 10))
  if a_high ~= b_high then
    return a_high < b_high
  end
  return tonumber(string.sub(a, 11)) < tonumber(string.sub(b, 11))
end

local kind = redis.call('TYPE', key).ok
if kind ~= 'none' and kind ~= 'hash' then
  return {2, 'a ' .. kind, false}
end
local stored = redis.call('HMGET', key, 'token', 'value')
local seen, there = stored[1], stored[2]
if kind == 'hash' and not seen then
  return {2, 'a hash without a token', false}
elseif seen and (#seen > 20 or not string.find(seen, '^%d+$')) then
  return {2, 'a hash whose token is no number', false}
end
seen = seen or '0'
if verb == 'get' then
  return {1, seen, there}
elseif is_below(token, seen) then
  return {0, seen, false}
end

if verb == 'set' then
  redis.call('HSET', key, 'token', token, 'value', value)
else
  redis.call('HSET', key, 'token', token)
  if verb == 'clear' then
    redis.call('HDEL', key, 'value')
  end
end
if keep == '0' then
  redis.call('PERSIST', key)
else
  redis.call('PEXPIRE', key, keep)
end
return {1, token, there}
