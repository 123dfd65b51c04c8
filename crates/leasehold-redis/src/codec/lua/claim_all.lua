-- Claims several keys in one step: all are granted at once, or nothing is changed.
-- The twin of `Queue::claim_all`.
--
-- KEYS     <prefix>lock:<name> each, no two the same
-- ARGV[1]  flags: the way
-- ARGV[2]  retention, in microseconds
-- then five arguments a key: claim id, lease TTL, waiter TTL, flags, and capacity, weight,
-- inbox and owner, as for claim.lua
--
-- Returns  an array of the answers, each as claim.lua packs them     all are granted
--          the number of the first that is not, from 0, and its answer  nothing was done
--          or the error LHTYPE, LHVERSION, OOM
local flags, retention = ARGV[1] + 0, ARGV[2] + 0
-- include time.lua
-- include way.lua

-- Works out the claim of one key; answers how to write it, or an error.
local function part(key, at)
-- include open.lua
-- include state.lua
  local function step()
-- include queue.lua
-- include join.lua
    local id, flags = ARGV[at], ARGV[at + 3] + 0
    local failed = open(id)
    if failed then
      return failed
    end
    local answer, must = join(id, ARGV[at + 4], ARGV[at + 1] + 0, ARGV[at + 2] + 0, flags % 2 >= 1, flags % 4 >= 2)
    conclude()
    return {
      granted = answer[1] == 1 and answer[4] > 0,
      answer = pack_answer(answer),
      must = must,
      commit = function(must)
        return commit(must, retention, flags % 8 >= 4)
      end,
    }
  end
  return step()
end

local parts, answers, must = {}, {}, true
for i, key in ipairs(KEYS) do
  local worked = part(key, 5 * i - 2)
  if worked.err then
    return worked
  elseif not worked.granted then
    return {i - 1, worked.answer}
  end
  parts[i], answers[i], must = worked, worked.answer, must and worked.must
end
-- Once the first has been written, the server lets the others pass even if the
-- memory is full.
for _, worked in ipairs(parts) do
  local refused = worked.commit(must)
  if refused then
    return refused
  end
end
return answers
