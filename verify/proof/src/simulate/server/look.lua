local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  return {kind}
elseif kind == 'string' then
  return {kind, redis.call('GET', KEYS[1])}
end
local fields, names = redis.call('HGETALL', KEYS[1]), {}
local of = {}
for i = 1, #fields, 2 do
  names[#names + 1] = fields[i]
  of[fields[i]] = fields[i + 1]
end
table.sort(names)
local all = {kind}
for _, name in ipairs(names) do
  all[#all + 1] = name
  all[#all + 1] = of[name]
end
return all
