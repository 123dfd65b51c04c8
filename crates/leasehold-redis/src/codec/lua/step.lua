-- Takes steps, one after the other: each claims, renews or releases a key, or changes it as
-- an administrator does. The twin of `Queue::apply`.
--
-- KEYS     <prefix>lock:<name>, one a step; then, not in a cluster, <prefix>last: the last
--          token of all keys; then, with 8, the audit log; then, where env.lua says so, <prefix>boot
-- ARGV[1]  flags: 4 the count of PUBLISH can be believed, 8 there is an audit log: audit.lua, 16 the client listens on this
--          connection, as the bodies of its claims say, too, 256 all or nothing (the steps are claims, each of another
--          key), 512 not all are claims, and the way
-- ARGV[2]  in a cluster, for how long an idle key keeps its last token, in microseconds
-- then a command a step: its verb u8, and (as record.rs counts; TTLs in microseconds)
--   1 claim    flags u8 (1 it stays when it cannot be granted at once, 2 it may pass those who
--              wait, 4 it has a minimum hold, 8 an owner's secret), lease TTL, waiter TTL, id text, body
--   2 renew    flags u8 (1 a writer becomes a reader, 2 there is a new note, 8 there is a new
--              id, 16 and a new client), TTL, id text; with 2 or 8 the new note u16 and bytes,
--              the new id text, the version that the claim has now, the new client as in a body
--   3 release  flags u8 (1 the step hands on to the next in line, 2 settled: no claim with this
--              id can still be under way, 8 what it holds was never used: no minimum hold is
--              kept), id text
--   4 break    the token of the only holders that it is taken from or 0, the client, as in a body
--   5 resize   the permits there are u32, and shall be u32
--   6 watch    for how long (0: no longer), inbox text
--   7 propose  a claim at a member of a set: flags u8 (1 it is told when the key is free), lease
--              TTL, waiter TTL, id text, its token, how far that may be ahead of this clock, body
--   8 void     flags u8 (1 the claim is released, 2 the key is taken from whoever has such a
--              token), up to which token none is accepted any more, id text, with 2 the client
--
-- Returns an answer a step, packed as one byte and doubles, of a length that its kind has
--   1, at, arrival, token or 0, position, deadline, and blocked until, or 0 where it is granted,
--      or the arrival of the claim behind which it is granted           standing
--   2, at, blocked until                                                busy
--   3, at                                                               gone
--   4, at, 1 if it held else 0                                          released
--   5, at                                                               absent
--   6, at, permits in use or -1 for a lock                              mismatch
--   7, at, how many held, the raised token: tokens up to it are void    broken
--   8, at                                                               superseded
--   9, at                                                               taken
--   10, at                                                              resized
--   11, at                                                              done
--   12, at, until                                                       quarantined
--   13, at, the highest token here, the highest that may be proposed    outbid
-- or the error LHTYPE, LHVERSION, LHCLOCK, OOM: all answers in one text, one behind the other, or
-- in an array where one is an error; with 256 in an array, and where not all are granted, nothing
-- is done, and the answer is the number of the first that is not, from 0, and what it would have
-- been told.
local flags = ARGV[1] + 0
-- include time.lua
-- include env.lua
local byte, sub, pack, unpack_from = string.byte, string.sub, struct.pack, struct.unpack
-- The audit log is the last key.
local log = flags % 16 >= 8 and table.remove(KEYS)
-- include audit.lua
local steps = #KEYS - (in_cluster and 0 or 1)

-- The strings at the keys, as far as they are known (false: another type, or nothing), and the
-- last token of all of them. A cluster has neither: there a record is a hash, and a key keeps
-- its own last token. MGET answers nil for a key of another type where GET would fail, and
-- failed calls show up in the server's statistics.
local values, last_before = {}, 0
if not in_cluster and flags >= 512 then
  values = call('MGET', unpack(KEYS))
  last_before = values[steps + 1] or 0
elseif not in_cluster then
  last_before = call('MGET', KEYS[steps + 1])[1] or 0
end
last_before = last_before + 0
local last_token = last_before

-- Keys to be removed at the end, by one DEL; and those whose value is not as it was read: a queue
-- whose last step was lean, or anything.
local spent, touched = {}, {}
local CHANGED, IN_QUEUE = 1, 2
-- With an audit log a hold that has expired stays for a day, so that a step can find and note it.
local stays = log and 86400000000 or 0

-- To make a function takes longer than a step that is lean, so what the others need is made when
-- the first of them comes.
local answers, take, write_queue = {}, nil, nil
-- All or nothing: first they are worked out, and then written. Once the first has been, the server
-- lets the others pass even if the memory is full; so none may force its way unless all may.
local all, may_force = flags % 512 >= 256, true
local released, lives_for, lives
for turn = 1, all and 2 * steps or steps do
  local at = (turn - 1) % steps + 1
  local key, command, answer = KEYS[at], ARGV[at + 2], nil
  local verb, marks = byte(command, 1, 2)
  local how = touched[key]
  if how == CHANGED and not in_cluster then
    if #spent > 0 then
      call('DEL', unpack(spent))
      spent = {}
    end
    values[at] = call('MGET', key)[1]
  end
  if not in_cluster and verb < 4 and not all and how ~= IN_QUEUE then
-- include lean.lua
  end
  if not answer then
    if not take then
-- include take.lua
    end
    local said, must
    answer, said, must = take(at, all and turn <= steps, may_force)
    if all and turn <= steps then
      if not said then
        return answer
      elseif said[1] ~= 1 or said[4] == 0 or said[7] > 0 then
        return {at - 1, answer}
      end
      may_force = may_force and must
      if turn == steps then
        last_token = last_before
        if note then
          forget_entries(0)
        end
      end
    end
  end
  answers[at] = answer
end
if write_queue then
  write_queue()
end
if #spent > 0 then
  call('DEL', unpack(spent))
end
if last_token > last_before and not in_cluster then
  local text = string.format('%.0f', last_token)
  if redis.pcall('SET', KEYS[steps + 1], text).err then
    -- A break of nothing, or a claim that was refused, has written nothing. After a write that needs
    -- no memory, a full server lets this pass.
    call('PEXPIRE', KEYS[steps + 1], 1000)
    call('SET', KEYS[steps + 1], text)
  end
end
if note and #entries > 0 then
  local keep = ARGV[steps + 3]
  -- include write_log.lua
end
if all then
  return answers
elseif steps == 1 then
  return answers[1]
end
-- One text is shorter to send and to read than many. An error is none.
local well, joined = pcall(table.concat, answers)
return well and joined or answers
