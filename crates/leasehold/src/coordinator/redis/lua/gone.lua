-- What became of a grant that does not stand any more. `token` is false for a claimant who never learnt it.
local function gone(slot, lease, token)
  local last = slot.token
  if slot.lease then
    if slot.lease == lease and (not token or token == slot.token) then
      if slot.by then return { 'revoked', slot.by, slot.why, slot.at > now and slot.at - now or 0 } end
      return { 'expired' }
    end
    -- An offer's own token was given to nobody: what was the highest before is told.
    if slot.granted <= 0 then last = -slot.granted end
    if token and token < last then return { 'superseded', last } end
  end
  if slot.end_lease == lease and (not token or token == slot.end_token) then
    if slot.end_reason == 0 then return { 'released' } end
    if slot.end_reason == 1 then return { 'expired' } end
    return { 'revoked', slot.end_by, slot.end_why, 0 }
  end
  if last and token and token < last then return { 'superseded', last } end
  return { 'absent' }
end
