-- Gives this node a grant that the majority has and has just renewed: it missed the second phase, or was late, or has forgotten
-- it, or missed its renewals. `asked` is when this node was asked for that renewal: what is planted ends as if it had been
-- renewed then, so a late message brings nothing back. Whatever speaks of a later grant, or of this one's end, forbids it.
local function run(op, key)
  local lease, token, ttl, delay, asked, granted = op[1], op[2], op[3], op[4], op[5], op[9]
  local slot, new = load(key)
  local till = asked + ttl * 1000 + delay
  if may_have(slot, lease, token) then
    slot.token, slot.granted = token, granted
    if till >= slot.at then slot.at, slot.ttl, slot.delay = till, ttl, delay end
    save(key, slot)
    return { 'planted' }
  end
  sweep(slot)
  if slot.lease or (slot.token or 0) > token or slot.end_lease == lease and slot.end_reason ~= 1 or left > 0
     or ttl > space.max or asked > now or now >= till then
    return { 'gone', gone(slot, lease, token) }
  end
  slot.token, slot.lease, slot.holder, slot.label, slot.wake = token, lease, op[6], op[7], op[8]
  slot.ttl, slot.delay, slot.at, slot.granted = ttl, delay, till, granted
  save(key, slot, true)
  if new then redis.call('ZADD', KEYS[2], 0, op[10]) end
  return { 'planted' }
end
