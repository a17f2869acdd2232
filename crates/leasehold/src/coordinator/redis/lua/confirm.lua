-- The second phase of a claim: the offers become one grant, under a token above all of them. The time runs from here, so
-- whoever counts from the first phase counts less.
local function run(op, key)
  local lease, token, ttl, delay, granted = op[1], op[2], op[3], op[4], op[5]
  local slot = load(key)
  if not may_have(slot, lease, token) then return { 'gone', gone(slot, lease, token) } end
  slot.token, slot.granted = token, granted
  local till = now + ttl * 1000 + delay
  if till >= slot.at then slot.at, slot.ttl, slot.delay = till, ttl, delay end
  save(key, slot)
  return { 'confirmed' }
end
