-- Takes back a claim that found no majority of nodes, as if it had not been made: the same claim may come again. Only an offer,
-- or what this very attempt made (under one of its tokens): a late message must not end what a later attempt was granted.
local function run(op, key, line, entries)
  local lease, proposed, agreed = op[1], op[2], op[3]
  local slot = load(key)
  if slot.lease ~= lease or slot.granted > 0 and slot.token ~= proposed and slot.token ~= agreed then
    return { 'absent' }
  end
  if slot.granted <= 0 then slot.token = slot.granted < 0 and -slot.granted end
  slot.lease, slot.at = false, now
  for field = 5, 12 do slot[field] = false end
  local first, entry = head(slot, line, entries)
  save(key, slot)
  if entry then tell(entry[3], first) end
  return { 'retracted' }
end
