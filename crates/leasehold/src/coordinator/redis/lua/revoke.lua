local function run(op, key, line, entries, past_key)
  local token, by, why, at_once = op[1], op[2], op[3], op[4] == 1
  local slot = load(key)
  sweep(slot)
  if not slot.lease then
    if changed then save(key, slot, false, past_key) end
    return { 'free', last_end(slot) }
  end
  if slot.token ~= token then return { 'other', record(slot) } end
  slot.by, slot.why = by, why
  local answer, wake, lease = { 'ended', record(slot), slot.at - now }, slot.wake, slot.lease
  local first, entry
  if at_once then
    ended(slot, 2, why, by)
    slot.at = now
    first, entry = head(slot, line, entries)
    answer[3] = 0
  end
  save(key, slot, false, past_key)
  -- The holder in both cases: it should stop now, not at its next renewal.
  tell(wake, lease)
  if entry then tell(entry[3], first) end
  return answer
end
