-- Forgets a name whose record has vanished. Says whether the record is there, and whether the name was.
local function run(op, key)
  local there = redis.call('EXISTS', key)
  return { 'forgotten', there, there == 0 and redis.call('ZREM', KEYS[2], op[1]) or 0 }
end
