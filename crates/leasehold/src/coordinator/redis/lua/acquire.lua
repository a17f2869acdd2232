-- The resource is free, and others have the better right to it.
local function behind(claim, slot, line, entries)
  local first = head(slot, line, entries)
  if not first or first == claim.lease then return false end
  local since = now > slot.at and now - slot.at or 0
  local reserved = RESERVATION > since and RESERVATION - since or 0
  if since >= FORSAKEN or reserved == 0 and redis.call('ZRANK', line, claim.lease) then return false end
  local position = join(claim, slot, line, entries)
  return { 'queued', position or redis.call('ZCARD', line), position, reserved }
end

local function grant(claim, slot, line, entries, new)
  local last = slot.token or 0
  local limit = (last > now and last or now) + MAX_FLOOR_LEAD
  if claim.floor > limit then return { 'refused', 'floor', claim.floor, limit } end
  local token = math.max(last + 1, claim.floor + 1, now)
  local granted = now
  if claim.proposal then
    -- Where several nodes are asked, each takes the token that the claim proposes, if it may: then all have the same. One of
    -- its own is only an offer until they have agreed: `granted` is then not above 0, and says (negated) which token was the
    -- highest before. A bound keeps a client whose clock is wild from pushing tokens ahead.
    granted = -last
    if claim.proposal >= token and claim.proposal <= now + MAX_PROPOSAL_LEAD then
      token, granted = claim.proposal, claim.proposal
    elseif token == claim.proposal then
      -- Whoever hears the proposal takes it for agreed on. An offer must not look like that.
      token = token + 1
    end
  end
  if token > MAX_TOKEN then return { 'refused', 'exhausted' } end
  leave(slot, line, entries, claim.lease)
  slot.token, slot.lease, slot.holder, slot.label, slot.wake = token, claim.lease, claim.holder, claim.label, claim.wake
  slot.ttl, slot.delay, slot.at, slot.granted = claim.ttl, claim.delay, now + claim.ttl * 1000 + claim.delay, granted
  changed = true
  -- How the grant before ended is read from the record and not from this step's sweep: whoever found that it had lapsed may have
  -- been told to wait.
  return { 'granted', token, claim.ttl, now, 0, slot.end_reason == 1 and 1 or 0, new and 1 or 0, slot.end_token or 0 }
end

-- The answer; and for whoever is to be woken, where, and which claim.
local function decide(claim, slot, line, entries, new)
  if slot.lease == claim.lease and now < slot.at and not slot.by then
    -- What was forgotten may be that this grant ended and another followed: its holder renews, whoever only asks waits.
    if left > 0 then return { 'quarantined', left, false } end
    -- A repeated claim whose first attempt was granted: the same grant, its TTL running anew.
    if claim.ttl > slot.ttl then slot.ttl = claim.ttl end
    local till = now + claim.ttl * 1000 + claim.delay
    if till >= slot.at then slot.at, slot.delay = till, claim.delay end
    changed = true
    return { 'granted', slot.token, claim.ttl, slot.granted > 0 and slot.granted or 0, 1, 0, 0, 0 }
  end
  sweep(slot)
  if slot.end_lease == claim.lease then return { 'spent', last_end(slot) } end
  if claim.once > 0 and slot.success then
    -- A clock that was set back since then puts the next run off by one period at most.
    local since = math.abs(now - slot.success)
    if since < claim.once then
      leave(slot, line, entries, claim.lease)
      -- It may have been the one for whom a free resource was kept: the next must not sleep until its re-check.
      local first, entry
      if not slot.lease then first, entry = head(slot, line, entries) end
      return { 'done', slot.success, claim.once - since }, entry and entry[3], first
    end
  end
  if slot.lease then
    -- A claim whose own grant was revoked waits for nothing.
    return { 'busy', record(slot), slot.lease ~= claim.lease and join(claim, slot, line, entries) }
  end
  if left > 0 then
    -- It becomes free when the quarantine ends: from then on it is kept for the first in line, as after a release.
    slot.at = now + left
    changed = not new or claim.queue == 1
    return { 'quarantined', left, join(claim, slot, line, entries) }
  end
  return not claim.proposal and behind(claim, slot, line, entries) or grant(claim, slot, line, entries, new)
end

local function run(claim, key, line, entries, past_key)
  if told ~= space.max and (told > 0 or space.max > first_max) then return { 'refused', 'agree', space.max } end
  if claim.ttl > space.max then return { 'refused', 'ttl', space.max } end
  local slot, new = load(key)
  local answer, wake, lease = decide(claim, slot, line, entries, new)
  if answer[1] == 'refused' then return answer end
  if changed then
    save(key, slot, answer[1] == 'granted' and answer[5] == 0, past_key)
    if new then redis.call('ZADD', KEYS[2], 0, claim.name) end
  end
  if space.settled == 0 and answer[1] == 'granted' then
    space.settled = 1
    keep_space()
  end
  if wake then tell(wake, lease) end
  return answer
end
