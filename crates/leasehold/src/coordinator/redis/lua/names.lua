-- What the shard is, and some of its names: those between two bounds in order, or without bounds as chance has it.
local function run(op)
  local names = {}
  if op[1] == '' then
    names = redis.call('ZRANDMEMBER', KEYS[2], op[3])
  elseif op[3] > 0 then
    names = redis.call('ZRANGEBYLEX', KEYS[2], op[1], op[2], 'LIMIT', 0, op[3])
  end
  return { 'names', names, space.max, stored and left or 0, stored and 1 or 0, space.settled }
end
