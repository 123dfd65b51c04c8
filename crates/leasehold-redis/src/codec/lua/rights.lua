-- Which commands this user may not run on a key. Changes nothing: nobody has this
-- key, and what would make it is given too many arguments, or asked for it as it is.
--
-- ARGV[1]   a key that is no lock's
-- ARGV[2…]  commands
-- returns   those of them that are forbidden, or unknown to the server
local more = {
  SET = {'', 'XX'}, SETRANGE = {'0', ''}, HSET = {'', '', ''}, HGET = {''}, HMGET = {''}, HDEL = {''},
  PEXPIRE = {'0'}, XADD = {'', '', ''},
}

-- Before Redis 7 nobody says it beforehand. A replica, which can't write, forbids nothing.
local function try(...)
  local answer = redis.pcall(...)
  local said = type(answer) == 'table' and answer.err or ''
  return not (string.find(said, "script can't", 1, true) or string.find(said, 'Unknown', 1, true))
end

local may = redis.acl_check_cmd or try
local forbidden = {}
for i = 2, #ARGV do
  local call = {ARGV[i]}
  if ARGV[i] ~= 'TIME' then
    call[2] = ARGV[1]
  end
  for _, argument in ipairs(more[ARGV[i]] or {}) do
    call[#call + 1] = argument
  end
  local known, allowed = pcall(may, unpack(call))
  if not (known and allowed) then
    forbidden[#forbidden + 1] = ARGV[i]
  end
end
return forbidden
