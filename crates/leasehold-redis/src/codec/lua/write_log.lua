-- Writes what was noted as one entry of the audit log; `keep` is how much of the log stays. All else is
-- written by then, and must not be undone.
local limit = 'MAXLEN'
if byte(keep) == 45 then
  limit, keep = 'MINID', string.format('%.0f', math.max(math.floor(clock / 1000) + keep, 0))
end
local all_entries = #entries > 1 and table.concat(entries) or entries[1]
redis.pcall('XADD', log, limit, '~', keep, '*', 'v1', all_entries)
