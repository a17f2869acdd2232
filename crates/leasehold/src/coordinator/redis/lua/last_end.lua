local function last_end(slot)
  return slot.end_lease and { slot.end_lease, slot.end_token, slot.end_reason, slot.end_why, slot.end_by, slot.end_at }
end
