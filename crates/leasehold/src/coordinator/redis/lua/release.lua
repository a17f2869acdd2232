local function run(op, key, line, entries, past_key)
  local lease, token, succeeded = op[1], op[2] > 0 and op[2], op[3] == 1
  local slot = load(key)
  local was_queued = not token and leave(slot, line, entries, lease)
  local answer
  if slot.lease == lease and (not token or token == slot.token) and now < slot.at then
    answer = { 'ended' }
    if succeeded and slot.granted > 0 then slot.success = slot.granted end
    if slot.by then ended(slot, 2, slot.why, slot.by) else ended(slot, 0, false, slot.label) end
    slot.at = now
  elseif was_queued then
    answer = { 'left' }
  else
    answer = { 'gone', gone(slot, lease, token) }
  end
  local first, entry
  -- The first in line may have gone: the next one must not wait for its re-check.
  if answer[1] == 'ended' or was_queued and (not slot.lease or now >= slot.at) then
    first, entry = head(slot, line, entries)
  end
  if changed then save(key, slot, false, past_key) end
  if entry then tell(entry[3], first) end
  return answer
end
