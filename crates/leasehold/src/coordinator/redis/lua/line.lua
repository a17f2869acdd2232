-- The queue of one resource: a sorted set for the order, a hash for who they are (when each joined, when it asked last,
-- where it is woken, its label). Both exist only while somebody waits, and the record says whether they may (`queued`), so an
-- uncontended resource pays nothing for having one.

local function leave(slot, line, entries, lease)
  if not slot.queued then return false end
  redis.call('HDEL', entries, lease)
  return redis.call('ZREM', line, lease) > 0
end

-- The first who is alive, and its entry; the dead in front of it are removed, a bounded number at a time.
local function head(slot, line, entries)
  if not slot.queued then return false end
  local first
  for _ = 1, MAX_BURIALS do
    first = redis.call('ZRANGE', line, 0, 0)[1]
    if not first then
      slot.queued, changed = false, true
      return false
    end
    local raw = redis.call('HGET', entries, first)
    local entry = raw and cmsgpack.unpack(raw)
    if entry and now - entry[2] < ENTRY_LIFE then
      if entry[2] > now then
        -- Refreshed in the future: the clock was set back, and the place must not live for ever.
        entry[2] = now
        redis.call('HSET', entries, first, cmsgpack.pack(entry))
      end
      return first, entry
    end
    leave(slot, line, entries, first)
  end
  return redis.call('ZRANGE', line, 0, 0)[1] or false
end

-- Tells one client that one of its claims or grants should look again. A hint: that it cannot be sent is no failure.
local function tell(wake, lease)
  local hex = string.format(string.rep('%02x', #wake), string.byte(wake, 1, #wake))
  redis.pcall('PUBLISH', 'lh:wake:' .. hex, lease)
end
