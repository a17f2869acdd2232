-- Of several independent nodes, a majority decides, and what one node has may be less than a grant: an offer (`granted` is not
-- above 0), or what is left of a claim that found no majority.

-- True when what this node has of a grant may get this token: it is above all others here, or the grant's already.
local function may_have(slot, lease, token)
  if slot.lease ~= lease or slot.by or now >= slot.at then return false end
  -- An offer's own token was given to nobody.
  return token >= slot.token or slot.granted <= 0 and token > -slot.granted
end
