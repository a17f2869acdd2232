-- Leaves or refreshes the claim's place, when it queues. The place, counted from 0.
local function join(claim, slot, line, entries)
  if claim.queue ~= 1 then return false end
  local entry = slot.queued and redis.call('HGET', entries, claim.lease)
  entry = entry and cmsgpack.unpack(entry) or { now, now, claim.wake, claim.label }
  entry[2], entry[3] = now, claim.wake
  local last = slot.queued and redis.call('ZREVRANGE', line, 0, 0, 'WITHSCORES')[2] or 0
  redis.call('ZADD', line, 'NX', last + 1, claim.lease)
  redis.call('HSET', entries, claim.lease, cmsgpack.pack(entry))
  -- A place that nobody refreshes is dead after a while; its keys stay a while longer and vanish by themselves.
  local px = math.floor((left + 3 * ENTRY_LIFE) / 1000)
  redis.call('PEXPIRE', line, px)
  redis.call('PEXPIRE', entries, px)
  if not slot.queued then slot.queued, changed = true, true end
  return redis.call('ZRANK', line, claim.lease)
end
