-- Ends a grant whose TTL ran out; it has been free since then.
local function sweep(slot)
  if not slot.lease or now < slot.at then return end
  if slot.granted <= 0 then
    -- An offer that no majority of nodes took up was no grant, and has no end to be told.
    slot.lease, changed = false, true
    return
  end
  if slot.by then ended(slot, 2, slot.why, slot.by) else ended(slot, 1, false, slot.label) end
end
