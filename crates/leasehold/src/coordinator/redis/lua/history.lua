-- The grants that have ended, the latest first; one whose TTL ran out and that nobody has found so yet among them.
local function run(_, key, past_key)
  local slot = load(key)
  sweep(slot)
  local found = {}
  if past then found[1] = { cmsgpack.unpack(past) } end
  for _, raw in ipairs(redis.call('LRANGE', past_key, 0, PAST_KEPT - 1)) do found[#found + 1] = { cmsgpack.unpack(raw) } end
  return { 'history', found }
end
