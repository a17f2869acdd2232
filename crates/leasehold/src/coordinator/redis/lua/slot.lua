-- One resource's record: one string, so that it is read and written whole, and small.
--
-- `at` is the end of the grant while there is one, and the moment of becoming free afterwards. `token` is the highest ever
-- given, which is the grant's while there is one. The key outlives the grant by the retention of tokens, so how the last
-- grant ended can be told for a week; a key that is gone knew nothing that the floor of tokens does not make up for.

-- Whether the slot that was read last has to be written; the grant that was ended, for the history, and whether it is the first
-- of its day.
local changed, past, first_today

local function load(key)
  local raw = redis.call('GET', key)
  changed, past = false, false
  if not raw then
    return { 'LHR2', false, false, 0, false, false, false, false, false, false, false, false, false, false, false, false, false,
             false, false, false }, true
  end
  if string.sub(raw, 1, 5) ~= '\164LHR2' then error('LHCORRUPT the key ' .. key .. ' holds something else', 0) end
  local slot = { cmsgpack.unpack(raw) }
  -- More time left than was ever given: the clock was set back. From now on the grant has what it was given at most, and
  -- a free resource has been free since now (or will be when the quarantine ends).
  local latest = slot.lease and slot.ttl * 1000 + slot.delay or left
  if slot.at > now + latest then
    slot.at = now + latest
    changed = true
  end
  return slot, false
end
