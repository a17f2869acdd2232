local function record(slot)
  return { slot.lease, slot.token, slot.ttl, slot.at > now and slot.at - now or 0,
           slot.granted > 0 and slot.granted or 0, slot.holder, slot.label,
           slot.by, slot.why }
end
