    -- The lean way: a key that nobody holds or waits for, and one that is held alone. It says
    -- the same as the queue at length, in a fraction of the time; what it does not know, it
    -- leaves to that. The record of a sole holder is a short string that expires by itself:
    -- see record.rs.
    local value = values[at]
    if verb == 1 then
      if not value and marks % 8 < 4 and closed_for <= 0 then
        local ttl = unpack_from('<d', command, 3)
        if ttl ~= lives_for then
          local micros = ttl + stays
          lives_for, lives = ttl, string.format('%.0f', math.max(math.ceil(micros / 1000), 1))
        end
        local token, deadline = last_token + 1, clock + ttl
        if token < clock then token = clock end
        local done = redis.pcall('SET', key, pack('<BBBddddc0', 108, 104, 2, clock, clock, deadline, token,
          sub(command, 19)), 'NX', 'PX', lives)
        if done and not done.err then
          last_token, touched[key] = token, CHANGED
          if note then
            local body_at = 20 + byte(command, 19)
            note('g', key, clock, token, token, clock, 0, sub(command, 20, body_at - 1), sub(command, body_at))
          end
          answer = pack('<Bdddddd', 1, clock, token, token, 0, deadline, 0)
        end
      end
    elseif value and byte(value, 3) == 2 and #value > 54 then
      local id = sub(command, verb == 2 and 11 or 3)
      local seen, deadline = unpack_from('<dd', value, 12)
      if string.find(value, id, 36, true) == 36 and clock >= seen and deadline > clock then
        if verb == 3 then
          -- Settled: nothing is to be remembered.
          if marks % 4 >= 2 then
            spent[#spent + 1], touched[key] = key, CHANGED
            released = released or pack('<Bdd', 4, clock, 1)
            answer = released
            if note then
              local since, _, _, token = unpack_from('<dddd', value, 4)
              note('r', key, clock, token, token, since, 0, sub(id, 2), sub(value, 36 + #id))
            end
          end
        elseif marks == 0 then
          local raised = clock + unpack_from('<d', command, 3)
          if raised > deadline then deadline = raised end
          local micros = deadline - clock + stays
          local done = redis.pcall('SET', key, pack('<c0ddc0', sub(value, 1, 11), clock, deadline, sub(value, 28)),
            'PX', string.format('%.0f', math.max(math.ceil(micros / 1000), 1)))
          if not done.err then
            touched[key] = CHANGED
            local token = unpack_from('<d', value, 28)
            answer = pack('<Bdddddd', 1, clock, token, token, 0, deadline, 0)
          end
        end
      end
    end
