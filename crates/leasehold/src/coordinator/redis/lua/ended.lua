-- Ends the grant: how (0 released, 1 expired, 2 revoked), why, by whom.
local function ended(slot, reason, why, by)
  if keeps_history and slot.granted > 0 then
    first_today = not slot.end_at or math.floor(slot.end_at / DAY_US) ~= math.floor(now / DAY_US)
    past = cmsgpack.pack(slot.holder, slot.label, slot.granted, slot.lease, slot.token, reason, why, by, now)
  end
  slot.end_lease, slot.end_token, slot.end_reason = slot.lease, slot.token, reason
  slot.end_why, slot.end_by, slot.end_at = why, by, now
  slot.lease = false
  for field = 5, 12 do slot[field] = false end
  changed = true
end
