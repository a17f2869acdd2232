local function run(op, key)
  local lease, token, ttl, delay = op[1], op[2], op[3], op[4]
  local slot = load(key)
  local mine = slot.lease == lease and slot.token == token
  -- A bound that was lowered counts from the next grant.
  if mine and ttl > space.max and ttl > slot.ttl then return { 'refused', 'ttl', math.max(slot.ttl, space.max) } end
  if not mine or slot.by or now >= slot.at then return { 'gone', gone(slot, lease, token) } end
  local till = now + ttl * 1000 + delay
  if till >= slot.at then slot.at, slot.ttl, slot.delay = till, ttl, delay end
  save(key, slot)
  if ttl > space.max then
    -- A grant of an older, larger bound goes on: the quarantine after a loss of memory must cover it.
    if now >= space.wide_until or ttl > space.wide then space.wide = ttl end
    space.wide_until = math.max(space.wide_until, now + ttl * 1000)
    keep_space()
  end
  return { 'extended' }
end
